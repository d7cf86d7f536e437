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
    let key = crate::SampleKey { seed: 0, epoch: 0, sample: 2 };
    let (mut input, mut target) = (vec![0.0; 3 * 64], [0]);
    let to = crate::SampleMut::new(crate::FieldMut::Float(&mut input), crate::FieldMut::Index(&mut target));
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
            assert_eq!(error.kind, ErrorKind::Spec, "{error}");
            errors += 1;
        }
    }
    assert!(errors > 20, "{errors}");
    assert!(Path::new(&train).exists());
}

/// `pq.write_table(pa.table({"x": [1.0, 2.0, 3.0, 4.0], "y": [0, 1, 0, 1]}), "b.parquet", compression="brotli",
/// store_schema=False, write_statistics=False)` of pyarrow 26.
const BROTLI: &str = "504152311504154015364c150815001200001b1f00000436e0c271b413c461220794056ad9f742a4f0ef225905\
    15001514151c2c15081510150615061c0000008b04800200000008010203e4000315041520151a4c1504150012\
    00001b0f00002402ca9046caf9740f15001512151a2c15081510150615061c0000000b04800200000008010103\
    0a031504193c35001806736368656d61150400150a25021801780015042502180179001608191c192c26001c15\
    0a19350006101918017815081608169601169401265a2608292c15041500150200150015101502003c29061926\
    000800000026001c1504193500061019180179150816081674167626d201269c01292c15041500150200150015\
    101502003c290619260008000000168a0216082608168a02002820706172717565742d6370702d6172726f7720\
    76657273696f6e2032362e302e31192c1c00001c000000c900000050415231";

#[test]
fn a_compression_that_is_not_read_is_named() {
    let folder = Folder::new();
    let train = folder.at("train.parquet");
    std::fs::create_dir_all(train.parent().unwrap()).unwrap();
    std::fs::write(&train, data_encoding::HEXLOWER.decode(BROTLI.as_bytes()).unwrap()).unwrap();
    let error = folder.error(folder.table("target = 'y'"));
    assert!(error.starts_with("SET/train.parquet is compressed with brotli, which is not read\n"), "{error}");
    assert!(error.contains("zstd"), "{error}");
}
