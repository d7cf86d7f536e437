//! A spec for images with a table of their names and labels, which `init image-folder` and `init csv` recognise.

use super::{commented, foreign, images, place, quoted, run_name, utf8};
use base::display::{self, count};
use base::error::Result;
use data::{ImageTableProposal, OtherTable, propose_image_table};
use std::path::Path;

/// The spec, and what it took from table and images; `None` if there is no such table at `path`.
pub fn proposal(path: &Path) -> Result<Option<(String, String)>> {
    let Some(found) = propose_image_table(path)? else { return Ok(None) };
    // As it was given, not absolute.
    let root = match path.is_dir() {
        true => path,
        false => base::files::folder(path),
    };
    let name = run_name(root);
    let root = utf8(root)?;
    let lines = dataset(root, &found)?;
    Ok(Some((images::spec(&name, root, &found.survey, lines), images::about(&found.survey))))
}

fn dataset(root: &str, found: &ImageTableProposal) -> Result<Vec<String>> {
    let mut lines = vec!["[dataset]".to_owned(), "name = \"image-csv\"".to_owned(), place("root", root)];
    let train = found.tables.train.file_name().unwrap_or_default().to_string_lossy();
    let why = format!("names and labels of {}", count(found.survey.images, "image"));
    lines.push(commented(&format!("train = {}", quoted(&train)), &why));
    let folder =
        |key: &str, folder: &Path| -> Result<String> { Ok(format!("{key} = {}", quoted(utf8(folder)?))) };
    let [own, of_val, of_test] = &found.images;
    if own.as_os_str() != "" {
        lines.push(folder("images", own)?);
    }
    if let Some(val) = &found.tables.val {
        let why = format!("validation: {}", count(val.rows, "row"));
        lines.push(commented(&format!("val = {}", quoted(&val.name)), &why));
        if of_val != own {
            lines.push(folder("val_images", of_val)?);
        }
    }
    match &found.tables.test {
        Some(test) if test.labelled => {
            let why = format!("`ddp-run eval --split test` measures its {}", count(test.rows, "row"));
            lines.push(commented(&format!("test = {}", quoted(&test.name)), &why));
            if of_test != own {
                lines.push(folder("test_images", of_test)?);
            }
        }
        Some(test) => lines.push(without_labels(test, found)),
        None => {}
    }
    if !found.tables.unused.is_empty() {
        let names: Vec<String> = found.tables.unused.iter().map(|name| foreign(name)).collect();
        lines.push(format!("# Not used: {}.", names.join(", ")));
    }
    if found.delimiter != ',' {
        lines.push(format!("delimiter = {}", quoted(&found.delimiter.to_string())));
    }
    lines.push(commented(&format!("image = {}", quoted(&found.image)), "the column of the names"));
    lines.push(commented(
        &format!("target = {}", quoted(&found.target)),
        &format!("the column of the labels, chosen {}", found.target_reason),
    ));
    let task = if found.numbers { "regression" } else { "classification" };
    lines.push(commented(&format!("task = {}", quoted(task)), &found.task_reason));
    lines.extend(images::sizes(&found.survey));
    let (read, bad) = found.survey.read;
    if bad > 0 || found.missing > 0 {
        let missing = count(found.missing, "row");
        let why =
            format!("{missing} without an image; {bad} of {read} images that were read can't be decoded");
        lines.push(commented("bad_images = \"skip\"", &why));
    }
    if found.tables.val.is_none() {
        let why = "part of the images for validation, drawn at random";
        lines.push(commented("val_split = 0.2", why));
    }
    lines.extend(images::hints());
    Ok(lines)
}

/// The line about a test table without labels.
fn without_labels(test: &OtherTable, found: &ImageTableProposal) -> String {
    let images = found.root.join(&found.images[2]);
    format!(
        "# {} has no labels: `ddp-run predict RUN {}` predicts those of its images.",
        foreign(&test.name),
        display::shell_word(&images)
    )
}
