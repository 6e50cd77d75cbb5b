//! Tests of rotated files: pipes, devices, and files that another process changes.

use std::process::Command;

use super::*;

fn params(path: PathBuf) -> RotatedFileParams {
    RotatedFileParams { path, max_size: 100, keep: 3, fsync: true, private: false }
}

fn pipe(folder: &Path) -> PathBuf {
    let path = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

fn reader(path: &Path) -> File {
    let at_once = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
    OpenOptions::new().read(true).custom_flags(at_once).open(path).unwrap()
}

#[test]
fn pipe_is_written_once_and_not_synced() {
    let folder = tempfile::tempdir().unwrap();
    let path = pipe(folder.path());
    let mut reader = reader(&path);
    let mut file = RotatedFile::new(params(path));
    file.append(&[b'x'; 200]).unwrap();
    file.append(b"a line\n").unwrap();
    let mut read = [0; 300];
    assert_eq!(reader.read(&mut read).unwrap(), 207, "neither repeated nor rotated");
}

#[test]
fn pipe_without_a_reader_is_an_error_until_it_has_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = pipe(folder.path());
    for fsync in [true, false] {
        let mut file = RotatedFile::new(RotatedFileParams { fsync, ..params(path.clone()) });
        assert_eq!(file.append(b"lost\n").unwrap_err().to_string(), "the pipe has no reader");
        let mut reader = reader(&path);
        file.append(b"one\n").unwrap();
        let mut read = [0; 10];
        assert_eq!((reader.read(&mut read).unwrap(), &read[..4]), (4, &b"one\n"[..]));
        drop(reader);
        assert_eq!(file.append(b"lost\n").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(file.append(b"lost\n").unwrap_err().to_string(), "the pipe has no reader");
    }
}

#[test]
fn device_is_written_with_fsync() {
    RotatedFile::new(params("/dev/null".into())).append(b"a line\n").unwrap();
}

#[test]
fn file_truncated_by_another_process_is_rotated_by_its_real_length() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let mut file = RotatedFile::new(params(path.clone()));
    file.append(&[[b'x'; 89].as_slice(), b"\n"].concat()).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    file.append(b"one\n").unwrap();
    assert!(!folder.path().join("a.jsonl.1").exists());
    // Another process has written an incomplete line.
    File::options().append(true).open(&path).unwrap().write_all(&[b'y'; 80]).unwrap();
    file.append(b"two\n").unwrap();
    assert_eq!(fs::read(&path).unwrap(), [b"one\n".as_slice(), &[b'y'; 80], b"\ntwo\n"].concat());
    file.append(&[b'\n'; 20]).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [b'\n'; 20]);
}

#[test]
fn failed_write_does_not_enlarge_a_truncated_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let mut file = RotatedFile::new(params(path.clone()));
    file.append(b"a first line\n").unwrap();
    let open = file.open.take().unwrap();
    let other = File::options().write(true).open(&path).unwrap();
    other.set_len(20).unwrap();
    open.remove_incomplete();
    assert_eq!(fs::read(&path).unwrap(), b"a first line\n");
    other.set_len(2).unwrap();
    open.remove_incomplete();
    assert_eq!(fs::read(&path).unwrap(), b"a ");
}
