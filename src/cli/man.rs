//! `ddp-run man`: the manual, from the declarations of the command line.

use base::error::{Error, Result};
use clap_mangen::Man;
use std::path::PathBuf;

/// Print the manual page, or write the pages of all subcommands
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Write `ddp-run.1`, and a page per subcommand such as `ddp-run-train.1`, to this folder
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

/// Prints the page of the whole program to standard output, or writes it and one page per subcommand to a folder.
///
/// # Errors
/// The folder can't be made or written (exit 74).
pub fn run(args: &Args) -> Result<()> {
    let Some(folder) = &args.folder else { return super::print(&page()?) };
    let unwritable =
        |e: std::io::Error| Error::io(format!("cannot write the manual to {}: {e}", folder.display()));
    std::fs::create_dir_all(folder).map_err(unwritable)?;
    for sub in all(&super::built()) {
        let name = sub.get_display_name().unwrap_or(sub.get_name()).to_owned();
        let source = concat!("ddp-run ", env!("CARGO_PKG_VERSION"));
        let mut page = Vec::new();
        Man::new(sub).source(source).manual("ddp-run").render(&mut page).map_err(unwritable)?;
        std::fs::write(folder.join(format!("{name}.1")), page).map_err(unwritable)?;
    }
    // This page has the flags of all subcommands, too.
    std::fs::write(folder.join("ddp-run.1"), page()?).map_err(unwritable)
}

/// The page of the whole program, with a section for each subcommand.
fn page() -> Result<String> {
    let mut command = super::command();
    command.build();
    let mut page = Vec::new();
    rendered(&command, &mut page).map_err(|e| Error::internal(format!("cannot write the manual: {e}")))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

fn rendered(command: &clap::Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    let man = Man::new(command.clone()).manual("ddp-run");
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    sections(command, page)?;
    man.render_extra_section(page)?;
    man.render_version_section(page)
}

/// Every visible subcommand below `command`, and theirs.
fn all(command: &clap::Command) -> Vec<clap::Command> {
    let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    visible.flat_map(|sub| [vec![sub.clone()], all(sub)].concat()).collect()
}

/// A section for each subcommand that is not hidden, and for theirs.
fn sections(command: &clap::Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        let man = Man::new(sub.clone());
        let name = sub.get_bin_name().unwrap_or(sub.get_name()).to_uppercase().replace('-', "\\-");
        // What it is for, how it is typed, and its flags.
        for (i, of) in
            [Man::render_description_section, Man::render_synopsis_section, Man::render_options_section]
                .into_iter()
                .enumerate()
        {
            let mut part = Vec::new();
            of(&man, &mut part)?;
            let part = String::from_utf8_lossy(&part);
            let heading = if i == 0 { format!(".SH \"{name}\"") } else { ".PP".to_owned() };
            let lines = part.lines().map(|line| if line.starts_with(".SH ") { &heading } else { line });
            page.extend(lines.flat_map(|line| [line, "\n"]).flat_map(str::bytes));
        }
        sections(sub, page)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command as Process;

    /// Without the escapes of roff.
    fn plain(page: &str) -> String {
        page.replace("\\-", "-").replace("\\fB", "").replace("\\fI", "").replace("\\fR", "")
    }

    #[test]
    fn every_subcommand_and_flag_is_in_the_manual() {
        let mut command = super::super::command();
        command.build();
        let page = plain(&page().expect("a page"));
        let subcommands = all(&command);
        assert!(subcommands.len() > 15, "{}", subcommands.len());
        for sub in &subcommands {
            let name = sub.get_bin_name().expect("it is built").to_uppercase();
            let section = page.split(".SH ").find(|part| part.starts_with(&format!("\"{name}\"\n")));
            let section = section.unwrap_or_else(|| panic!("no section {name} in:\n{page}"));
            for arg in sub.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let shown = match arg.get_long() {
                    Some(long) => format!("--{long}"),
                    None => arg.get_value_names().expect("a value")[0].to_string(),
                };
                assert!(section.contains(&shown), "{name} lacks {shown}:\n{section}");
            }
        }
        assert!(!page.contains("BENCH-WORKER") && page.contains("Exit codes: 0 done"), "{page}");
    }

    #[test]
    fn a_folder_gets_a_page_per_subcommand() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("man1");
        run(&Args { folder: Some(folder.clone()) }).expect("written");
        let there = |name: &str| folder.join(name).is_file();
        assert!(there("ddp-run.1") && there("ddp-run-train.1") && there("ddp-run-bench-allreduce.1"));
        assert!(!there("ddp-run-worker.1"));
        let main = std::fs::read_to_string(folder.join("ddp-run.1")).expect("readable");
        assert_eq!(main, page().expect("a page"));
        let train = std::fs::read_to_string(folder.join("ddp-run-train.1")).expect("readable");
        assert!(train.contains(".TH ddp-run-train 1  \"ddp-run "), "{train}");
        for (program, arguments) in [("mandoc", &["-Tlint", "-Werror"][..]), ("man", &["--warnings", "-l"])] {
            for page in folder.read_dir().expect("a folder").flatten() {
                if !accepts(program, arguments, &page.path()) {
                    break;
                }
            }
        }
    }

    /// Formats a page. False without the program.
    fn accepts(program: &str, arguments: &[&str], page: &Path) -> bool {
        let output = Process::new(program).args(arguments).arg(page).env("MANPAGER", "cat").output();
        match output {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                // On a minimised system, `man` is a script that only prints a notice.
                assert!(output.status.success() && said.is_empty(), "{program} {}: {said}", page.display());
                true
            }
            Err(e) => {
                println!("skipped: no {program}: {e}");
                false
            }
        }
    }
}
