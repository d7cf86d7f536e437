#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![deny(unsafe_code)]

pub mod device_transform;
pub mod models;
pub mod optim;
pub mod tasks;
pub mod training;
