"""Launches the example applications as their README says, on this machine and offline."""

import importlib.util
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

APPS = Path(__file__).parents[2] / "examples/apps"


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [m for m in modules if importlib.util.find_spec(m.partition(".")[0]) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {' '.join(missing)}")


def torch_test(*modules: str):
    """Marks a test of a program that needs PyTorch and perhaps more."""

    def mark(test):
        for decorator in (pytest.mark.torch, pytest.mark.timeout(300), needs("torch", *modules)):
            test = decorator(test)
        return test

    return mark


@pytest.fixture
def apps(tmp_path: Path) -> Path:
    """A copy of the applications, so that nothing is written among the originals."""
    return Path(shutil.copytree(APPS, tmp_path / "apps"))


def environment(**more: str) -> dict[str, str]:
    bin_dir = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": bin_dir + os.pathsep + os.environ["PATH"], **more}


def torchx(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torchx.cli.main", *args],
        cwd=folder,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def ddp(j: str) -> list[str]:
    """A job that shares its port with no other job on this machine."""
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    return ["run", "dist.ddp", "-j", j, "--rdzv_port", str(port)]


def utils_python(script: str) -> list[str]:
    return ["run", "utils.python", "--script", script, "--"]


def test_every_application_has_its_command_in_their_readme() -> None:
    text = (APPS / "README.md").read_text()
    programs = {str(p.relative_to(APPS)) for p in APPS.rglob("*.py") if "__main__" in p.read_text()}
    assert len(programs) == 5
    for program in programs:
        folder, _, script = program.partition("/")
        assert re.search(rf"--script ({folder}/)?{script}", text), program


# -- compute_world_size --------------------------------------------------------------------------


@torch_test()
@pytest.mark.parametrize(
    ("j", "size", "program"),
    [
        ("1x2", 2, ["--script", "compute_world_size/main.py"]),
        ("2x2", 4, ["-m", "compute_world_size.main"]),
    ],
)
def test_all_processes_find_the_size_of_the_world(apps, j, size, program) -> None:
    done = torchx(apps, *ddp(j), *program)
    assert done.returncode == 0, done.stderr
    for rank in range(size):
        line = f"rank: {rank}, actual world_size: {size}, computed world_size: {size}\n"
        assert done.stderr.count(line) == 1


@torch_test()
def test_the_computation_fails_where_it_is_told_to(apps) -> None:
    done = torchx(apps, *ddp("1x2"), "-m", "compute_world_size.main", "--", "throws=true")
    assert done.returncode == 1
    status = json.loads(torchx(apps, "status", "--json", done.stdout.strip()).stdout)
    assert status["state"] == "FAILED"
    error = json.loads(status["structured_error_msg"])["message"]["message"]
    assert "failing, as `throws` is set" in error


@torch_test("yaml")
@pytest.mark.parametrize("hydra", [True, False])
def test_the_program_runs_without_a_launcher_with_hydra_and_without(apps, hydra) -> None:
    if hydra and importlib.util.find_spec("hydra") is None:
        pytest.skip("hydra is not installed: pip install hydra-core")
    hide = "" if hydra else "sys.modules['hydra'] = None; "
    code = f"import sys, runpy; {hide}del sys.argv[0]\n"
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"

    def run(*overrides: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-c", code, str(apps / "compute_world_size/main.py")]
        env = environment()
        return subprocess.run(
            [*program, *overrides], env=env, capture_output=True, text=True, check=False
        )

    done = run("backend=gloo")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "rank: 0, actual world_size: 1, computed world_size: 1\n"
    assert "failing, as `throws` is set" in run("throws=true").stderr
    assert "nope" in run("nope=1").stderr


# -- datapreproc ---------------------------------------------------------------------------------


def make_zip(path: Path) -> None:
    from PIL import Image

    with zipfile.ZipFile(path, "w") as archive:
        for name, mode in [
            ("set/cats/a.jpg", "RGB"),
            ("set/cats/b.png", "RGBA"),
            ("../../dogs/c.bmp", "L"),
            ("/d.jpeg", "RGB"),
        ]:
            out = io.BytesIO()
            image = Image.linear_gradient("L").resize((50, 30)).point(lambda v: 50 + v // 4)
            image.convert(mode).save(out, {"jpg": "JPEG", "jpeg": "JPEG"}.get(name[-3:], "PNG"))
            archive.writestr(name, out.getvalue())
        archive.writestr("set/notes.txt", "no image")


@needs("PIL", "fsspec")
def test_a_local_archive_is_made_uniform(apps, tmp_path) -> None:
    from PIL import Image

    make_zip(tmp_path / "in.zip")
    arguments = [f"--input_path=file://{tmp_path}/in.zip", f"--output_path={tmp_path}/new/out"]
    done = torchx(apps, *utils_python("datapreproc/datapreproc.py"), *arguments)
    assert done.returncode == 0, done.stderr
    assert "wrote 4 images" in done.stderr
    assert "skipping set/notes.txt" in done.stderr
    with tarfile.open(tmp_path / "new/out/images.tar.gz") as archive:
        assert archive.getnames() == ["cats/a.png", "cats/b.png", "dogs/c.png", "d.png"]
        for member in archive.getmembers():
            image = Image.open(archive.extractfile(member))
            assert (image.format, image.mode, image.size) == ("PNG", "RGB", (64, 64))
            assert image.getextrema()[0] == (0, 255)  # full contrast


@needs("PIL", "fsspec")
def test_without_an_archive_images_are_made_up_and_can_be_limited(apps, tmp_path) -> None:
    arguments = ["--output_path", str(tmp_path), "--limit", "5"]
    done = torchx(apps, *utils_python("datapreproc/datapreproc.py"), *arguments)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / "images.tar.gz") as archive:
        assert len(archive.getnames()) == 5


# -- lightning -----------------------------------------------------------------------------------


@torch_test("lightning", "captum", "PIL", "fsspec")
def test_a_model_is_trained_goes_on_and_is_interpreted(apps, tmp_path) -> None:
    from PIL import Image

    def train(j: str, *arguments: str) -> str:
        job = [*ddp(j), "--script", "lightning/train.py", "--"]
        paths = [f"--output_path={tmp_path}/out", f"--log_path={tmp_path}/logs"]
        done = torchx(apps, *job, *paths, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stderr

    lines = train("1x2", "--epochs=20", "--num_samples=64")
    assert lines.count("trained for 20 epochs") == 1
    assert re.search(r"run_training_batch: \d+ times", lines)
    assert list((tmp_path / "logs").rglob("metrics.csv"))
    assert os.listdir(tmp_path / "out") == ["last.ckpt"]
    train("1x1", "--epochs=1", f"--load_path={tmp_path}/out/last.ckpt")
    assert os.listdir(tmp_path / "out") == ["last.ckpt"]

    arguments = [f"--load_path={tmp_path}/out/last.ckpt", f"--output_path={tmp_path}/png"]
    done = torchx(apps, *utils_python("lightning/interpret.py"), *arguments)
    assert done.returncode == 0, done.stderr
    names = [f"image{n}_is_{n}_said_{n}.png" for n in range(4)]
    assert sorted(os.listdir(tmp_path / "png")) == names
    for n, name in enumerate(names):
        heat = Image.open(tmp_path / "png" / name).convert("L").crop((64, 0, 128, 64))
        left, top = 32 * (n % 2), 32 * (n // 2)
        bright = heat.crop((left, top, left + 32, top + 32))
        assert sum(bright.tobytes()) > 0.8 * sum(heat.tobytes())  # it looked at the right quarter


@torch_test("lightning", "PIL", "fsspec")
def test_a_model_is_trained_on_preprocessed_images(apps, tmp_path) -> None:
    job = utils_python("datapreproc/datapreproc.py")
    assert torchx(apps, *job, f"--output_path={tmp_path}/data").returncode == 0
    arguments = [f"--data_path={tmp_path}/data", "--epochs=1", f"--log_path={tmp_path}", "--layers"]
    done = torchx(apps, *utils_python("lightning/train.py"), *arguments, "4", "4")
    assert done.returncode == 0, done.stderr
    assert "trained for 1 epochs" in done.stderr


# -- tracker -------------------------------------------------------------------------------------


@torch_test("fsspec")
def test_a_tracked_job_records_what_it_did(apps, tmp_path) -> None:
    if importlib.util.find_spec("torchx.tracker") is None:
        pytest.skip("torchx.tracker is not part of this version")
    folder, records = apps / "tracker", tmp_path / "records"
    records.mkdir()
    conf = folder / "fsspec.conf"
    conf.write_text(conf.read_text().replace("/tmp/torchx_jobs", str(records)))
    done = torchx(folder, *ddp("1x2"), "--script", "main.py", "--", "--epochs", "3")
    assert done.returncode == 0, done.stderr
    handle = done.stdout.strip()

    from torchx.tracker.backend.fsspec import create

    tracker = create(str(conf))
    assert list(tracker.run_ids()) == [handle]
    metadata = tracker.metadata(handle)
    assert (metadata["epochs"], metadata["lr"]) == (3, 0.1)
    artifacts = tracker.artifacts(handle)
    assert set(artifacts) == {"tensorboard", "model"}
    assert artifacts["model"].metadata == {"classes": 10}
    assert Path(artifacts["model"].path).is_file()
    assert os.listdir(artifacts["tensorboard"].path)
