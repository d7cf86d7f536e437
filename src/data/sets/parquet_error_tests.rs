use super::*;

#[test]
fn messages_about_wrong_files() {
    let folder = Folder::new();
    let train = folder.at("train.parquet");
    let mut messages = String::new();
    let mut note = |of: Result<Splits>| messages += &format!("{}\n\n", folder.error(of));
    write_images(&train, &images(0..4), Some(CLASSES));
    note(folder.images("image = 'images'"));
    note(folder.images("target = 'lable'"));
    note(folder.images("image = 'label'"));
    note(folder.table("target = 'label'"));
    note(folder.table("target = 'label'\nfeatures = ['imge']"));
    let mut bad = images(0..4);
    bad[2].0.truncate(40);
    write_images(&train, &bad, Some(CLASSES));
    let open = folder.images("").unwrap();
    let key = crate::data::SampleKey { seed: 0, epoch: 0, sample: 2 };
    let (mut input, mut target) = (vec![0.0; 3 * 64], [0]);
    let to = crate::data::SampleMut::new(
        crate::data::FieldMut::Float(&mut input),
        crate::data::FieldMut::Index(&mut target),
    );
    note(open.train.write(key, to).map(|()| open.clone()));
    bad[2] = (png([0; 3]), 3);
    write_images(&train, &bad, Some(CLASSES));
    note(folder.images(""));
    let lists = ParquetFile {
        schema: "required group tags (LIST) { repeated group list { required int64 element; } } required int64 day (TIMESTAMP(MILLIS,true)); required double y;",
        ..Default::default()
    };
    lists.write(&train, &[]);
    note(folder.table("target = 'y'"));
    note(folder.table("target = 'y'\nfeatures = ['day']"));
    note(folder.images(""));
    note(folder.images("image = 'y'\ntarget = 'tags'"));
    let bytes = std::fs::read(&train).unwrap();
    std::fs::write(&train, &bytes[..bytes.len() - 9]).unwrap();
    note(folder.images(""));
    std::fs::write(&train, "version https://git-lfs.github.com/spec/v1\noid sha256:0\n").unwrap();
    note(folder.images(""));
    std::fs::write(&train, "").unwrap();
    note(folder.images(""));
    messages += &configure(&parquet, "path = 'a'\ncontent = 'table'").err().unwrap();
    messages +=
        &configure(&parquet, "path = 'a'\ncontent = 'text'\ntarget = 'b'\nimage_size = 8").err().unwrap();
    insta::assert_snapshot!(messages);
}

/// Whatever becomes of a file, reading it ends with an error or with samples.
#[test]
fn damaged_files_are_errors() {
    let folder = Folder::new();
    let train = folder.at("train.parquet");
    write_images(&train, &images(0..8), Some(CLASSES));
    let whole = std::fs::read(&train).unwrap();
    let mut errors = 0;
    for at in (4..whole.len() - 4).step_by(5) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x5a;
        std::fs::write(&train, &bytes).unwrap();
        if let Err(error) = folder.images("") {
            assert_eq!(error.code, ExitCode::Spec, "{error}");
            errors += 1;
        }
    }
    assert!(errors > 20, "{errors}");
    assert!(Path::new(&train).exists());
}
