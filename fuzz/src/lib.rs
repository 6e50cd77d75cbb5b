//! Entry points of the fuzz targets. The target functions are in `tests/fuzz/targets`, shared with the replay test.

#[path = "../../tests/fuzz/targets/mod.rs"]
mod targets;

macro_rules! export {
    ($($target:ident)*) => {
        $(
            /// Runs the target of the same name on one input.
            pub fn $target(data: &[u8]) {
                targets::$target::run(data);
            }
        )*
    };
}

export!(caches clusters config filter journal list_pages protobuf protobuf_json records template texts watch_lines webhook);
