//! Paths put together as one tree, so that one walk over an object finds what any of them leads to.

use smol_str::SmolStr;

use super::Segment;

/// The ways on from one place of such a tree: numbers of places. Names are compared one by one: no place has more than a
/// dozen.
#[derive(Debug, Default)]
pub struct Steps {
    fields: Vec<(SmolStr, usize)>,
    each: Option<usize>,
}

impl Steps {
    /// Returns the step below a field, if one begins there.
    #[inline]
    #[must_use]
    pub fn field(&self, name: &[u8]) -> Option<usize> {
        self.fields.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, place)| *place)
    }

    /// Returns the step below every element of an array, if one begins there.
    #[inline]
    #[must_use]
    pub fn each(&self) -> Option<usize> {
        self.each
    }

    /// The names that lead on.
    #[must_use]
    pub fn fields(&self) -> &[(SmolStr, usize)] {
        &self.fields
    }

    /// Whether nothing leads on.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.each.is_none()
    }

    fn along(&self, segment: &Segment) -> Option<usize> {
        match segment {
            Segment::Field(name) => self.field(name.as_bytes()),
            Segment::Each => self.each,
        }
    }
}

/// A place of a tree.
pub trait Place: Default {
    /// The ways on from it.
    fn steps(&mut self) -> &mut Steps;
}

/// The place at the end of a path from the first one, which is there; made where it is missing.
pub fn place_of<P: Place>(places: &mut Vec<P>, path: &[Segment]) -> usize {
    let mut at = 0;
    for segment in path {
        let fresh = places.len();
        let steps = places[at].steps();
        at = steps.along(segment).unwrap_or(fresh);
        if at == fresh {
            match segment {
                Segment::Field(name) => steps.fields.push((name.clone(), fresh)),
                Segment::Each => steps.each = Some(fresh),
            }
            places.push(P::default());
        }
    }
    at
}
