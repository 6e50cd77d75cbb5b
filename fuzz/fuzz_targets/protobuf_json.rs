#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| informer_hub_fuzz::protobuf_json(data));
