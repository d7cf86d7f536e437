use super::*;
use std::time::Duration;

#[test]
fn lines_have_the_documented_format() {
    let events = [
        (
            Event::Step(StepEvent {
                step: 480,
                epoch: 1,
                loss: 0.1 + 0.2,
                lr: 5e-4,
                samples_per_s: 1234.5,
                tokens_per_s: None,
                flops_per_s: None,
                mfu: None,
                grad_norm: None,
                data_wait: 0.25,
                times: None,
                overlap: None,
            }),
            r#"{"event":"step","step":480,"epoch":1,"loss":0.30000000000000004,"lr":0.0005,"samples_per_s":1234.5,"data_wait":0.25}"#,
        ),
        (
            Event::Step(StepEvent {
                step: 480,
                epoch: 1,
                loss: 0.5,
                lr: 5e-4,
                samples_per_s: 1234.5,
                tokens_per_s: None,
                flops_per_s: None,
                mfu: None,
                grad_norm: Some(1.0),
                data_wait: 0.25,
                times: Some(RankTimes {
                    data: vec![0.001, 0.002],
                    forward: vec![0.25, 0.5],
                    backward: vec![0.5, 0.75],
                    comm: vec![0.1, 0.0],
                    optimizer: vec![0.01, 0.02],
                    checkpoint: vec![0.0, 0.03],
                    other: vec![0.0, 0.04],
                }),
                overlap: Some(0.75),
            }),
            r#"{"event":"step","step":480,"epoch":1,"loss":0.5,"lr":0.0005,"samples_per_s":1234.5,"grad_norm":1.0,"data_wait":0.25,"times":{"data":[0.001,0.002],"forward":[0.25,0.5],"backward":[0.5,0.75],"comm":[0.1,0.0],"optimizer":[0.01,0.02],"checkpoint":[0.0,0.03],"other":[0.0,0.04]},"overlap":0.75}"#,
        ),
        (
            Event::Epoch(EpochEvent {
                epoch: 0,
                train: Metrics::new(1.5).with("accuracy", 0.55),
                val: Some(Metrics::new(1.25).with("accuracy", 0.5).samples(5000)),
                seconds: 12.5,
                step: 352,
                lr: 5e-4,
                samples_per_s: 3600.0,
                tokens_per_s: None,
                flops_per_s: None,
                mfu: None,
                data_wait: 0.001,
                cut: false,
            }),
            r#"{"event":"epoch","epoch":0,"train":{"loss":1.5,"accuracy":0.55},"val":{"loss":1.25,"accuracy":0.5,"n":5000},"seconds":12.5,"step":352,"lr":0.0005,"samples_per_s":3600.0,"data_wait":0.001}"#,
        ),
        (
            Event::Checkpoint(CheckpointEvent {
                step: 480,
                epoch: 1,
                path: "checkpoints/step-00000480".into(),
                bytes: 134,
                seconds: 0.25,
                held_up_s: Some(0.02),
            }),
            r#"{"event":"checkpoint","step":480,"epoch":1,"path":"checkpoints/step-00000480","bytes":134,"seconds":0.25,"held_up_s":0.02}"#,
        ),
        (
            Event::Restart(RestartEvent { attempt: 1, reason: "rank 1 was killed".into() }),
            r#"{"event":"restart","attempt":1,"reason":"rank 1 was killed"}"#,
        ),
        (
            Event::Resume(ResumeEvent {
                step: 480,
                epoch: 1,
                path: "c".into(),
                world: 2,
                global_batch: 32,
                accumulate: 4,
            }),
            r#"{"event":"resume","step":480,"epoch":1,"path":"c","world":2,"global_batch":32,"accumulate":4}"#,
        ),
        (
            Event::End(EndEvent { step: 960, epoch: 2, reason: "done".into(), exit_code: 0, seconds: 60.0 }),
            r#"{"event":"end","step":960,"epoch":2,"reason":"done","exit_code":0,"seconds":60.0}"#,
        ),
        (
            Event::Divergence(DivergenceEvent {
                step: 8,
                epoch: 0,
                ranks: vec![2],
                by: Some("majority".into()),
                tensor: "parameter w".into(),
                digests: vec!["a".into(), "a".into(), "b".into()],
                agreed: 4,
            }),
            r#"{"event":"divergence","step":8,"epoch":0,"ranks":[2],"by":"majority","tensor":"parameter w","digests":["a","a","b"],"agreed":4}"#,
        ),
    ];
    for (event, line) in events {
        assert_eq!(serde_json::to_string(&event).unwrap(), line);
        assert_eq!(serde_json::from_str::<Event>(line).unwrap(), event);
    }
}

#[test]
fn a_line_ends_with_its_time() {
    let event = Event::Restart(RestartEvent { attempt: 1, reason: "killed".into() });
    let line =
        serde_json::to_string(&Stamped::at(&event, UNIX_EPOCH + Duration::from_millis(1_763_873_456_123)));
    let line = line.unwrap();
    assert_eq!(line, r#"{"event":"restart","attempt":1,"reason":"killed","time":1763873456.123}"#);
    assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
}

#[test]
fn a_non_finite_loss_is_null_and_read_as_nan() {
    let line =
        r#"{"event":"step","step":1,"epoch":0,"loss":null,"lr":0.1,"samples_per_s":1.0,"data_wait":0.0}"#;
    let Event::Step(step) = serde_json::from_str(line).unwrap() else { panic!("a step") };
    assert!(step.loss.is_nan());
    assert_eq!(serde_json::to_string(&Event::Step(step)).unwrap(), line);
}

/// As with a clock that stands still; `null` is what development builds wrote then.
#[test]
fn rates_that_are_not_finite_have_no_key() {
    let step = StepEvent { samples_per_s: f64::INFINITY, data_wait: f64::NAN, ..StepEvent::default() };
    let epoch = EpochEvent { samples_per_s: f64::NAN, data_wait: f64::NAN, ..crate::samples::epoch(0, 0.5) };
    for event in [Event::Step(step), Event::Epoch(epoch)] {
        let line = serde_json::to_string(&event).unwrap();
        assert!(!line.contains("samples_per_s") && !line.contains("data_wait"), "{line}");
        let nulls = line.replace("\"lr\"", "\"samples_per_s\":null,\"data_wait\":null,\"lr\"");
        for text in [&line, &nulls] {
            let read = serde_json::from_str::<Event>(text).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), line);
        }
    }
}
