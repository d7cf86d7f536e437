//! The data sets that ship with ddp-run, one file each.

mod cifar10;
mod cifar10_files;
mod csv;
mod csv_remarks;
mod csv_set;
mod csv_table;
mod image_decode;
mod image_files;
mod image_folder;
mod mnist;
mod official;
mod random;
mod shapes;
mod text;

pub use cifar10::cifar10;
pub use csv::csv;
pub use image_folder::image_folder;
pub use mnist::Mnist;
pub use random::random;
pub use shapes::shapes;
pub use text::text;
