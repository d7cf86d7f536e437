use super::*;
use crate::StepEvent;
use crate::event_file::testing::{fields, frames};
use crate::samples::{self, end};
use serde_json::json;
use std::fs;

fn about(lr: f64) -> StartOfRun {
    let Value::Object(values) = json!({ "seed": 7, "optimizer.lr": lr, "optimizer.name": "sgd", "dataset.shuffle": true, "model.hidden": [8, 4], "big": i64::MAX })
    else {
        unreachable!()
    };
    StartOfRun { spec: format!("seed = 7\n\n[optimizer]\nlr = {lr}\n# ```\n"), values }
}

/// The plugin, its data and the tensor of the only summary value of an event with `tag`.
fn plugin(event: &[u8], tag: &str) -> (String, Vec<u8>, Vec<u8>) {
    let get = |bytes: &[u8], number: u64| {
        fields(bytes).into_iter().find_map(|(n, value)| (n == number).then_some(value)).unwrap_or_default()
    };
    let value = get(&get(event, 5), 1);
    assert_eq!(get(&value, 1), tag.as_bytes());
    let data = get(&get(&value, 9), 1);
    (String::from_utf8(get(&data, 1)).unwrap(), get(&data, 2), get(&value, 8))
}

#[test]
fn the_spec_is_a_text_and_its_values_are_those_of_the_last_start() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("tensorboard");
    let mut first = TensorBoardWriter::create(&folder, 0, &about(0.1)).unwrap();
    first.write(&end(8, 75)).unwrap();
    let written = frames(&fs::read(first.events.path()).unwrap());
    let (name, _, tensor) = plugin(&written[1], "spec");
    let block = "    seed = 7\n    \n    [optimizer]\n    lr = 0.1\n    # ```\n";
    assert_eq!((name.as_str(), &fields(&tensor)[2]), ("text", &(8, block.as_bytes().to_vec())));
    let mut second = TensorBoardWriter::create(&folder, 8, &about(0.2)).unwrap();
    second.write(&end(8, 0)).unwrap();
    let written = frames(&fs::read(folder.join(HPARAMS)).unwrap());
    let of = |at: usize, tag: &str| {
        let (name, data, tensor) = plugin(&written[at], tag);
        assert_eq!((name.as_str(), tensor), ("hparams", vec![8, 1, 18, 2, 18, 0]));
        fields(&data).remove(0)
    };
    let (kind, info) = of(1, "_hparams_/session_start_info");
    let values: Vec<(String, (u64, Vec<u8>))> = fields(&info)
        .into_iter()
        .filter(|(n, _)| *n == 1)
        .map(|(_, entry)| {
            let entry = fields(&entry);
            (String::from_utf8(entry[0].1.clone()).unwrap(), fields(&entry[1].1).remove(0))
        })
        .collect();
    let number = |x: f64| (2, x.to_le_bytes().to_vec());
    let expected = [
        ("seed", number(7.0)),
        ("optimizer.lr", number(0.2)),
        ("optimizer.name", (3, b"sgd".to_vec())),
        ("dataset.shuffle", (4, 1u64.to_le_bytes().to_vec())),
        ("model.hidden", (3, b"[8,4]".to_vec())),
        ("big", (3, i64::MAX.to_string().into_bytes())),
    ];
    assert_eq!((kind, values), (3, expected.map(|(name, value)| (name.to_owned(), value)).to_vec()));
    let (kind, info) = of(2, "_hparams_/session_end_info");
    assert_eq!((kind, &fields(&info)[0]), (4, &(1, 1u64.to_le_bytes().to_vec())));
    assert_eq!(written.len(), 3, "the end of the first start is gone");
}

#[test]
fn written_records_decode() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = TensorBoardWriter::create(dir.path(), 299, &about(0.1)).unwrap();
    let event = Event::Step(StepEvent {
        step: 300,
        loss: 0.5,
        lr: 0.25,
        samples_per_s: 8.0,
        tokens_per_s: None,
        flops_per_s: None,
        mfu: None,
        grad_norm: Some(4.0),
        data_wait: 0.125,
        ..StepEvent::default()
    });
    writer.write(&event).unwrap();
    let frames = frames(&fs::read(writer.events.path()).unwrap());
    assert_eq!(frames.len(), 4);
    assert_eq!(fields(&frames[0])[1], (3, b"brain.Event:2".to_vec()));
    assert_eq!(fields(&frames[1])[1..], [(2, 300u64.to_le_bytes().to_vec()), (7, vec![8, 1])]);
    let event = fields(&frames[3]);
    assert_eq!(event[1], (2, 300u64.to_le_bytes().to_vec()));
    let values: Vec<(String, f32)> = fields(&event[2].1)
        .iter()
        .map(|(_, value)| {
            let value = fields(value);
            let float = f32::from_le_bytes(value[1].1.as_slice().try_into().unwrap());
            (String::from_utf8(value[0].1.clone()).unwrap(), float)
        })
        .collect();
    let expected = [
        ("step/loss", 0.5),
        ("step/lr", 0.25),
        ("step/samples_per_s", 8.0),
        ("step/grad_norm", 4.0),
        ("step/data_wait", 0.125),
    ];
    assert_eq!(values, expected.map(|(n, v)| (n.to_owned(), v)));
}

#[test]
fn starts_in_the_same_second_have_separate_files() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("tensorboard");
    let a = TensorBoardWriter::create(&folder, 0, &about(0.1)).unwrap();
    let b = TensorBoardWriter::create(&folder, 0, &about(0.1)).unwrap();
    assert_ne!(a.events.path(), b.events.path());
    // The second file invalidates the first from the first step on.
    let [a, b] = [a, b].map(|writer| frames(&fs::read(writer.events.path()).unwrap()));
    assert_eq!((a.len(), b.len()), (2, 3));
    assert_eq!(fields(&b[1])[1..], [(2, 1u64.to_le_bytes().to_vec()), (7, vec![8, 1])]);
}

#[test]
fn tensorboard_reads_the_files() {
    let Ok(python) = std::env::var("DDP_RUN_TENSORBOARD_PYTHON") else {
        println!("skipped: DDP_RUN_TENSORBOARD_PYTHON does not name a Python that has tensorboard");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut first = TensorBoardWriter::create(dir.path(), 0, &about(0.1)).unwrap();
    for step in 1..=4 {
        first.scalars(step, &[("step/loss", 1.0 / step as f64)]).unwrap();
    }
    // Resumed at step 2: steps 3 and 4 of the first file are stale.
    let mut second = TensorBoardWriter::create(dir.path(), 2, &about(0.2)).unwrap();
    second.write(&end(8, 74)).unwrap();
    second.scalars(3, &[("step/loss", 9.0)]).unwrap();
    second.write(&Event::Epoch(samples::epoch(0, 0.75))).unwrap();
    let script = "import sys\n\
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n\
        a = EventAccumulator(sys.argv[1]); a.Reload()\n\
        print([(s.step, s.value) for s in a.Scalars('step/loss')], a.Scalars('val/accuracy')[0].value)\n\
        print([(t.step, t.tensor_proto.string_val[0].decode().split()[-2]) for t in a.Tensors('spec')])\n\
        from tensorboard.plugins.hparams import metadata\n\
        data = a.PluginTagToContent('hparams')\n\
        start = metadata.parse_session_start_info_plugin_data(data[metadata.SESSION_START_INFO_TAG])\n\
        end = metadata.parse_session_end_info_plugin_data(data[metadata.SESSION_END_INFO_TAG])\n\
        print({k: v.WhichOneof('kind') for k, v in sorted(start.hparams.items())}, start.hparams['optimizer.lr'].number_value, end.status)\n";
    let out = std::process::Command::new(python).args(["-c", script]).arg(dir.path()).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let errors = String::from_utf8_lossy(&out.stderr);
    let expected = "[(1, 1.0), (2, 0.5), (3, 9.0)] 0.75\n[(0, '#'), (2, '#')]\n{'big': 'string_value', 'dataset.shuffle': 'bool_value', 'model.hidden': \
                    'string_value', 'optimizer.lr': 'number_value', 'optimizer.name': 'string_value', 'seed': 'number_value'} 0.2 2";
    assert_eq!(text.trim(), expected, "{errors}");
}
