//! Tests of the journal on a simulated disk.

mod damage;
mod displaced;
mod full_open;
mod histories;
mod model;
mod overwriting;
mod plain;
