//! HTTP connections to one server: a few HTTP/2 connections with many requests each, or one HTTP/1.1 connection for
//! each running request.
//!
//! # Lanes
//! Requests of a [`Lane`] share connections of HTTP/2. A connection takes as many requests as the server's
//! `SETTINGS_MAX_CONCURRENT_STREAMS` and the lane's own limit allow. If all are full, another one is opened.
//!
//! # Flow control
//! The window of a connection is the sum of the largest windows of its streams. Answers that are not read therefore
//! delay no other answer, and hold no more memory than their own windows. Windows start with 128 KiB and double while
//! readers wait for data.
//!
//! # Health
//! A connection that is silent for some seconds is probed with a PING. Without an answer it is closed, and its requests
//! fail. After a GOAWAY a connection takes no further requests, and the running ones continue. A request that the
//! server did not process is sent again on another connection.

mod answer;
mod connection;
mod dialer;
mod error;
mod gauges;
mod http1;
mod lane;
mod link;
mod pool;
mod window;

#[cfg(test)]
mod tests;

pub use answer::{Answer, AnswerError};
pub use dialer::{Dialer, Offer, Opened};
pub use error::{SendError, StreamError};
pub use gauges::Gauges;
pub use lane::Lane;
pub use pool::Pool;
