"""What a path, a folder and a pattern stand for."""

import pytest

from potstill.data.data_files import is_data_file, local_data_files, refuse_mixed_splits, select_data_files
from potstill.errors import SourceError


def fill(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


def names(paths, folder):
    return [path.relative_to(folder).as_posix() for path in paths]


def test_a_file_is_itself_whatever_its_name(tmp_path):
    fill(tmp_path, "a.csv", "b", "[c]*.txt")
    for name in ("a.csv", "b", "[c]*.txt"):
        assert local_data_files(str(tmp_path / name)) == [tmp_path / name]


def test_a_folder_is_the_data_files_in_it(tmp_path):
    fill(tmp_path, "b.tsv", "a.csv", "c.JSONL", "d.parquet", "e.tab", "f.txt", "g.json", "h.ndjson")
    fill(
        tmp_path,
        "README.txt",
        "LICENSE.txt",
        ".hidden.csv",
        "x.py",
        "dataset_info.json",
        "deeper/z.csv",
        "manifest.json",
    )
    expected = ["a.csv", "b.tsv", "c.JSONL", "d.parquet", "e.tab", "f.txt", "g.json", "h.ndjson"]
    assert names(local_data_files(f"{tmp_path}/"), tmp_path) == expected


def test_a_pattern_is_what_it_matches(tmp_path, monkeypatch):
    fill(tmp_path, "b1.txt", "b0.txt", "c.log", "d/e/f.txt")
    assert names(local_data_files(f"{tmp_path}/b[01].txt"), tmp_path) == ["b0.txt", "b1.txt"]
    assert names(local_data_files(f"{tmp_path}/**/*.txt"), tmp_path) == ["b0.txt", "b1.txt", "d/e/f.txt"]
    assert names(local_data_files(f"{tmp_path}/*"), tmp_path) == ["b0.txt", "b1.txt", "c.log"]
    monkeypatch.chdir(tmp_path)
    assert local_data_files("c.lo?") == [tmp_path / "c.log"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert local_data_files("~/c.log") == [tmp_path / "c.log"]


def test_what_is_not_there_is_said_with_what_is_near(tmp_path):
    fill(tmp_path, "train.tsv", "empty/x.py")
    with pytest.raises(SourceError, match=r"no such file: .*trian\.tsv; fix: did you mean train\.tsv\?"):
        local_data_files(str(tmp_path / "trian.tsv"))
    with pytest.raises(SourceError, match=r"no such file: .*/nowhere/x\.csv; fix: check the path"):
        local_data_files(str(tmp_path / "nowhere" / "x.csv"))
    with pytest.raises(SourceError, match="no such file"):
        local_data_files(str(tmp_path / "*.parquet"))
    with pytest.raises(SourceError, match="a folder without data files"):
        local_data_files(str(tmp_path / "empty"))
    (tmp_path / "dangling.csv").symlink_to("nowhere.csv")
    with pytest.raises(SourceError, match="a link to nothing"):
        local_data_files(str(tmp_path / "dangling.csv"))
    with pytest.raises(SourceError, match="is no file"):
        local_data_files("/dev/null")
    with pytest.raises(SourceError, match="cannot be a path"):
        local_data_files("x" * 5000)


def test_a_folder_of_several_splits_is_refused(tmp_path):
    fill(tmp_path, "train.tsv", "dev.tsv", "test.tsv")
    with pytest.raises(SourceError, match=rf"several splits: dev\.tsv, test\.tsv, train\.tsv; .*{tmp_path}/train\.tsv"):
        local_data_files(str(tmp_path))
    assert len(local_data_files(f"{tmp_path}/*.tsv")) == 3


@pytest.mark.parametrize(
    "files",
    [
        ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"],
        ["train/a.csv", "train/b.csv"],
        ["train.tsv", "extra.tsv"],
        ["dev.tsv", "validation.tsv"],
        ["contest.csv", "trainer.csv", "tested.csv"],
        ["train/test_a.csv", "x/test_b.csv"],
    ],
)
def test_one_split_passes(files):
    refuse_mixed_splits("it", files, "it/")


@pytest.mark.parametrize(
    "files",
    [
        ["a-train.tab", "a-test.tab"],
        ["train/a.csv", "test/a.csv"],
        ["x_TRAIN.csv", "x_val.csv"],
        ["dev.csv", "test.csv"],
    ],
)
def test_several_splits_do_not(files):
    with pytest.raises(SourceError, match="several splits"):
        refuse_mixed_splits("it", files, "it/")


def test_selects_from_a_list():
    held = [
        "README.md",
        "data/train-00000-of-00002.parquet",
        "data/train-00001-of-00002.parquet",
        "data/test-0.parquet",
        "a.csv",
    ]
    train = held[1:3]
    assert select_data_files("hub:o/n/data/train-*", "data/train-*", held) == train
    assert select_data_files("hub:o/n/README.md", "README.md", held) == ["README.md"]
    assert select_data_files("hub:o/n", "", ["b.csv", "README.md", "a.csv"]) == ["a.csv", "b.csv"]
    with pytest.raises(SourceError, match=r"fix: name it, for example hub:o/n/data/train-\*\.parquet"):
        select_data_files("hub:o/n/data", "data", held)
    with pytest.raises(SourceError, match=r"several splits"):
        select_data_files("hub:o/n", "", held)
    with pytest.raises(SourceError, match=r"did you mean a\.csv"):
        select_data_files("hub:o/n/b.csv", "b.csv", held)
    with pytest.raises(SourceError, match=r"has no data files; expected files \.csv"):
        select_data_files("hub:o/n", "", ["README.md", "script.py"])


@pytest.mark.parametrize(
    "name", ["README.txt", "license.json", "requirements.txt", ".git/x.csv", "a.csv.gz", "a", "csv"]
)
def test_is_no_data_file(name):
    assert not is_data_file(name)
