use super::*;

#[test]
fn messages_about_wrong_databases() {
    let folder = Folder::new();
    let connection = folder.write(
        "create table train (image blob, label int, note text);
         create table other (a int, b blob) without rowid;"
            .replace("a int,", "a int primary key,")
            .as_str(),
    );
    let mut messages = String::new();
    let mut note = |of: Result<Splits>| messages += &format!("{}\n\n", folder.error(of));
    connection.execute("insert into train values (?, 0, 'x')", [png(1)]).unwrap();
    connection.execute("insert into other values (1, ?)", [png(1)]).unwrap();
    note(folder.images("image = 'imgae'"));
    note(folder.images("target = 'note'\nimage = 'note'"));
    note(folder.table("target = 'label'"));
    note(folder.images("train = 'other'\ntarget = 'a'"));
    connection.execute("insert into train values (?, 1, 'x')", [&png(1)[..30]]).unwrap();
    let open = folder.images("").unwrap();
    let (mut input, mut target) = (vec![0.0; 3 * 64], [0]);
    let key = crate::SampleKey { seed: 0, epoch: 0, sample: 1 };
    let to = crate::SampleMut::new(crate::FieldMut::Float(&mut input), crate::FieldMut::Index(&mut target));
    note(open.train.write(key, to).map(|()| open.clone()));
    connection.execute("insert into train values (null, 1, 'x')", []).unwrap();
    note(folder.images(""));
    connection.execute("update train set image = 'a/b.png', label = 1.5", []).unwrap();
    note(folder.images(""));
    connection.execute("update train set label = 1", []).unwrap();
    note(folder.images(""));
    drop(connection);
    let whole = std::fs::read(folder.file()).unwrap();
    std::fs::write(folder.file(), &whole[..whole.len() - 1]).unwrap();
    note(folder.images(""));
    std::fs::write(folder.file(), "no database").unwrap();
    note(folder.images(""));
    std::fs::remove_file(folder.file()).unwrap();
    note(folder.images(""));
    messages += &configure(&sqlite, "path = 'a'\ntable = 'b'\ntest = 'c'").err().unwrap();
    insta::assert_snapshot!(messages);
}

/// Whatever becomes of a file, reading it ends with an error or with samples.
#[test]
fn damaged_databases_are_errors() {
    let folder = Folder::new();
    let connection = folder.write("create table train (image blob, label int)");
    for i in 0..20u8 {
        connection.execute("insert into train values (?, ?)", params![png(i), i % 3]).unwrap();
    }
    drop(connection);
    let whole = std::fs::read(folder.file()).unwrap();
    let mut errors = 0;
    for at in (0..whole.len()).step_by(11) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x5a;
        std::fs::write(folder.file(), &bytes).unwrap();
        if let Err(error) = folder.images("") {
            assert_eq!(error.kind, ErrorKind::Spec, "{error}");
            errors += 1;
        }
    }
    assert!(errors > 10, "{errors}");
}
