//! The data sets that ship with ddp-run, one file each.

mod cifar10;
mod cifar10_files;
mod columns;
mod columns_images;
mod columns_proposal;
mod columns_source;
mod columns_table;
#[cfg(all(test, any(feature = "parquet", feature = "sqlite")))]
mod columns_testing;
mod columns_text;
mod csv;
mod csv_columns;
mod csv_guessed;
mod csv_housing;
mod csv_joined;
mod csv_proposal;
mod csv_remarks;
mod csv_set;
mod csv_table;
mod csv_tables;
mod image_csv;
mod image_decode;
mod image_files;
mod image_folder;
mod image_input;
mod image_listed;
mod image_names;
mod image_pixels;
mod image_proposal;
mod image_rows;
mod image_source;
mod image_splits;
mod image_survey;
mod mnist;
mod official;
mod parquet;
mod parquet_files;
mod parquet_names;
#[cfg(feature = "parquet")]
mod parquet_pack;
#[cfg(feature = "parquet")]
mod parquet_rows;
#[cfg(not(feature = "parquet"))]
#[path = "parquet_missing.rs"]
mod parquet_rows;
#[cfg(feature = "parquet")]
mod parquet_schema;
#[cfg(feature = "parquet")]
mod parquet_values;
mod random;
mod shapes;
mod sqlite;
#[cfg(feature = "sqlite")]
mod sqlite_file;
#[cfg(feature = "sqlite")]
mod sqlite_images;
#[cfg(feature = "sqlite")]
mod sqlite_item;
#[cfg(feature = "sqlite")]
mod sqlite_rows;
#[cfg(not(feature = "sqlite"))]
#[path = "sqlite_missing.rs"]
mod sqlite_rows;
mod table;
mod table_blanks;
mod table_cells;
mod table_encoding;
mod table_known;
mod table_measured;
mod table_places;
mod table_untrained;
mod table_values;
mod text;

pub use cifar10::cifar10;
pub use columns_proposal::{ColumnsFormat, ColumnsProposal, Holds, propose_columns};
pub use csv::csv;
pub use csv_housing::california_housing;
pub use csv_proposal::CsvProposal;
pub use csv_tables::{CsvTables, OtherTable, propose_csv};
pub use image_csv::image_csv;
pub use image_folder::image_folder;
pub use image_input::{images_below, read_image};
pub use image_proposal::{ImageTableProposal, propose_image_table};
pub use image_survey::{ImageSurvey, survey_images};
pub use mnist::Mnist;
pub use parquet::parquet;
pub use random::random;
pub use shapes::shapes;
pub use sqlite::sqlite;
pub use table::Blanks;
pub use table_encoding::{InputRow, UnusableRow, read_rows};
pub use text::{read_text, text, tinyshakespeare};
