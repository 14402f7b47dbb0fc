"""contrib/: the unit of systemd with its capabilities and no others; the files for containers."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tomllib
from pathlib import Path

import pytest
from exporting import Exporter
from fixtures import build, start
from skips import need_program
from tracing_tools import USDT, Tool

from usdt.bpf import features
from usdt.bpf.link import UprobeMethod
from usdt.export.config import load_config

CONTRIB = Path(__file__).resolve().parents[2] / "contrib"
UNIT = CONTRIB / "usdt-export@.service"


def setting(name: str) -> str:
    """A setting of the unit."""
    (found,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return str(found)


def capabilities() -> list[str]:
    """The capabilities that the unit has, as setpriv writes them."""
    return [name.removeprefix("CAP_").lower() for name in setting("AmbientCapabilities").split()]


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = need_program("systemd-analyze", "systemd")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/local/bin/usdt", USDT))
    done = subprocess.run(
        [analyze, "verify", copy], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert setting("AmbientCapabilities") == setting("CapabilityBoundingSet")


def test_the_exporter_works_with_the_capabilities_of_the_unit(tmp_path: Path) -> None:
    setpriv = need_program("setpriv", "util-linux")
    if features.best_uprobe_method() is not UprobeMethod.UPROBE_MULTI:
        pytest.skip("needs uprobe_multi (Linux 6.6): perf events need CAP_SYS_ADMIN")
    # No other test runs a program of this name.
    threads = shutil.copy(build("default", "threads"), tmp_path / "unit-threads")
    config = tmp_path / "c.toml"
    config.write_text(
        '[[metric]]\nname = "hits"\nhelp = "h"\ntype = "counter"\n'
        f'probe = "threads:hit"\nprogram = "{Path(threads).name}"\n'
    )
    only = ",".join(f"+{name}" for name in capabilities())
    sets = [f"--inh-caps=-all,{only}", f"--ambient-caps=-all,{only}", f"--bounding-set=-all,{only}"]
    become = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", *sets, "--no-new-privs"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0usdt-test-{os.getpid()}")
        manager.settimeout(60)
        words = ["env", f"NOTIFY_SOCKET=@usdt-test-{os.getpid()}"]
        with (
            start(threads, "-w", "-t", 8, "-n", 100) as program,
            Tool("export", config, "--listen", "127.0.0.1:0", before=[*become, *words]) as tool,
        ):
            line = tool.wait_error("metrics at http")
            assert manager.recv(100) == b"READY=1"
            status = Path(f"/proc/{tool.pid}/status").read_text()
            assert re.search(r"^Uid:\t65534\t65534", status, re.MULTILINE)
            exporter = Exporter(tool, line.split()[2].removesuffix(";"))
            program.fire()
            assert exporter.value("hits_total") == 800
            tool.process.terminate()
            tool.finish()
            assert manager.recv(100) == b"STOPPING=1"


def test_the_files_for_kubernetes(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML (pip install)")
    config, daemon = yaml.safe_load_all((CONTRIB / "usdt-export.yaml").read_text())
    (tmp_path / "c.toml").write_text(config["data"]["export.toml"])
    assert load_config(str(tmp_path / "c.toml")).metrics
    pod = daemon["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["hostPID"] is True
    assert container["securityContext"]["capabilities"] == {
        "drop": ["ALL"],
        "add": [name.upper() for name in capabilities()],
    }
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    labels = daemon["spec"]["template"]["metadata"]["labels"]
    assert daemon["spec"]["selector"]["matchLabels"] == labels


def test_the_container_file_copies_what_exists() -> None:
    text = (CONTRIB / "Containerfile").read_text()
    copied = [
        word for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for word in line.split()
    ]
    assert copied
    assert all((CONTRIB.parent / name).exists() for name in copied)
    project = tomllib.loads((CONTRIB.parent / "pyproject.toml").read_text())["project"]
    assert "usdt" in project["scripts"]
    assert 'ENTRYPOINT ["usdt", "export"]' in text
