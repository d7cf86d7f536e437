//! The data sets that ship with ddp-run, one file each.

mod cifar10;
mod cifar10_files;
mod csv;
mod csv_columns;
mod csv_housing;
mod csv_proposal;
mod csv_remarks;
mod csv_set;
mod csv_table;
mod image_decode;
mod image_files;
mod image_folder;
mod image_survey;
mod mnist;
mod official;
mod random;
mod shapes;
mod table;
mod table_values;
mod text;

pub use cifar10::cifar10;
pub use csv::csv;
pub use csv_housing::california_housing;
pub use csv_proposal::{CsvProposal, propose_csv};
pub use image_folder::image_folder;
pub use image_survey::{ImageSurvey, survey_images};
pub use mnist::Mnist;
pub use random::random;
pub use shapes::shapes;
pub use text::{text, tinyshakespeare};
