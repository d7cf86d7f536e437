use super::*;
use crate::testing::python2_pickle;

/// A batch as written by Python 3 with numpy 2: protocol 4, framed, memoised.
fn protocol_4(labels: &[u8], pixels: &[u8], row: u8) -> Vec<u8> {
    let text = |s: &str| [&[0x8c, s.len() as u8][..], s.as_bytes(), &[0x94]].concat();
    let mut out = vec![0x80, 4, 0x95, 0, 0, 0, 0, 0, 0, 0, 0, b'}', 0x94, b'('];
    out.extend(text("labels"));
    out.extend([b']', 0x94, b'(']);
    labels.iter().for_each(|&l| out.extend([b'K', l]));
    out.push(b'e');
    out.extend(text("data"));
    out.extend([text("numpy._core.multiarray"), text("_reconstruct"), vec![0x93, 0x94]].concat());
    out.extend([text("numpy"), text("ndarray"), vec![0x93, 0x94]].concat());
    out.extend(b"K\x00\x85\x94C\x01b\x94\x87\x94R\x94(K\x01");
    out.extend([b'K', labels.len() as u8, b'K', row, 0x86, 0x94]);
    out.extend(
        [text("numpy"), text("dtype"), vec![0x93, 0x94], text("u1"), b"\x89\x88\x87\x94R\x94".to_vec()]
            .concat(),
    );
    out.extend(b"(K\x03");
    out.extend(text("|"));
    out.extend(b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t\x94b\x89B");
    out.extend((pixels.len() as u32).to_le_bytes());
    out.extend(pixels);
    out.extend(b"\x94t\x94bu.");
    out
}

#[test]
fn reads_both_pickle_protocols() {
    let pixels: Vec<u8> = (100..112).collect();
    let expected = PickledBatch { labels: vec![6, 9, 3], pixels: pixels.clone() };
    assert_eq!(read_batch(&python2_pickle(&[6, 9, 3], &pixels, 4), 4).unwrap(), expected);
    assert_eq!(read_batch(&protocol_4(&[6, 9, 3], &pixels, 4), 4).unwrap(), expected);
    let error = read_batch(&python2_pickle(&[6, 9, 3], &pixels, 4), 5).unwrap_err();
    assert_eq!(error, "`data` has shape [3, 4] instead of [3, 5]");
}

#[test]
fn rejects_pickles_with_other_names_or_opcodes() {
    for (program, why) in [
        (
            &b"\x80\x02cos\nsystem\n(U\x02idtR."[..],
            "it refers to `os.system`, which is not allowed (at byte 2)",
        ),
        (b"cposix\nsystem\n.", "it refers to `posix.system`, which is not allowed (at byte 0)"),
        (
            b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.",
            "it refers to `builtins.eval`, which is not allowed (at byte 18)",
        ),
        (b"(S'id'\nios\nsystem\n.", "opcode 0x53 is not supported (at byte 1)"),
        (b"cnumpy\ndtype\n(U\x02O8tR.", "a call that is not allowed (at byte 19)"),
        (b"\x80\x02\x82\x01.", "opcode 0x82 is not supported (at byte 2)"),
    ] {
        assert_eq!(read_batch(program, 4).unwrap_err(), why);
    }
}

#[test]
fn rejects_broken_pickles() {
    let whole = python2_pickle(&[6, 9, 3], &[0; 12], 4);
    for cut in 0..whole.len() {
        assert!(read_batch(&whole[..cut], 4).is_err(), "cut at {cut}");
    }
    // Every byte in turn replaced by every value: an error or a result, never a panic.
    for at in 0..whole.len() {
        for byte in 0..=255 {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            let _ = read_batch(&bytes, 4);
        }
    }
    // A length far beyond the end of the file, and deep nesting.
    assert!(read_batch(b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff", 4).is_err());
    assert!(
        read_batch(&[[b']'; 100_000], [b'a'; 100_000]].concat(), 4)
            .unwrap_err()
            .starts_with("it has too many")
    );
    assert!(read_batch(b"t.", 4).is_err());
}
