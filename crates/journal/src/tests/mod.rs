//! The journal over a simulated disk.

mod damage;
mod histories;
mod model;
mod place;
mod plain;
