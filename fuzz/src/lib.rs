//! What is fed with noise. The functions themselves are the test's (`tests/fuzz`), which replays the corpus.

#[path = "../../tests/fuzz/targets/mod.rs"]
mod targets;

macro_rules! export {
    ($($target:ident)*) => {
        $(
            /// The target of this name.
            pub fn $target(data: &[u8]) {
                targets::$target::run(data);
            }
        )*
    };
}

export!(caches clusters config filter journal list_pages records template texts watch_lines webhook);
