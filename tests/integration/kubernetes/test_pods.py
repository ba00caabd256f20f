"""What pods get on a real cluster: values byte for byte, names of any kind, devices, mounts."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchx.schedulers._kube.calls import PODS, Kind, Selection
from torchx.schedulers.kubernetes_scheduler import create_scheduler
from torchx.specs import (
    AppDef,
    AppState,
    BindMount,
    DeviceMount,
    Resource,
    Role,
    VolumeMount,
    macros,
)

from .conftest import ended, until
from .real_cluster import IMAGE, an_app, kubeconfig_for, own_place

SECRETS = Kind("", "v1", "secrets", "Secret")
CLAIMS = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Kind("", "v1", "persistentvolumes", "PersistentVolume")

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def place():
    with own_place() as found:
        yield found


@pytest.fixture(scope="module")
def scheduler(place, tmp_path_factory):
    path = kubeconfig_for(place, tmp_path_factory.mktemp("kube") / "kubeconfig")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", path)
        made = create_scheduler("test")
        made.list()  # reads the kubeconfig
        yield made
        made.close()


@pytest.fixture
def run(place, scheduler, monkeypatch, tmp_path):
    """Runs an app to its end; its id."""
    monkeypatch.setenv("KUBECONFIG", kubeconfig_for(place, tmp_path / "kubeconfig"))
    started = []

    def to_its_end(app, **cfg):
        started.append(scheduler.submit(app, {"grace_s": 1, **cfg}))
        found = ended(scheduler, started[-1])
        lines = "".join(b.text for b in scheduler.log_blocks(started[-1]))
        assert found.state is AppState.SUCCEEDED, (found.msg, lines)
        return started[-1]

    yield to_its_end
    for app_id in started:
        scheduler.delete(app_id)


def output(scheduler, app_id, k=0):
    return "".join(block.text for block in scheduler.log_blocks(app_id, [("r", k)]))


ODD = [
    "$(HOME) $$(HOME) $HOME ${HOME} $$ $",
    "a'b\"c\\d `e` !f",
    "é ü 漢字 🎉",
    "  two  spaces  ",
    "{}[]&*#?|<>:%@`",
    "x" * 5000,
    "line\nline\ttab\r\nline",
]
PRINTS = "import json, os, sys; print(json.dumps([sys.argv[1:], {k: v for k, v in os.environ.items() if k.startswith('ODD')}]))"  # noqa: E501 - a program


def test_values_arrive_byte_for_byte(run, scheduler):
    env = {f"ODD_{i}": text for i, text in enumerate(ODD)} | {"ODD.with-dots": "1", "ODD": ""}
    role = Role("r", IMAGE, entrypoint="python3", args=["-c", PRINTS, *ODD, macros.app_id], env=env)
    app_id = run(AppDef("odd", [role]))
    args, found = json.loads(output(scheduler, app_id))
    # `$$` is a dollar sign in what may hold macros
    assert args == [text.replace("$$", "$") for text in (*ODD, app_id.partition(":")[2])]
    assert found == {name: text.replace("$$", "$") for name, text in env.items()}


def test_the_number_of_a_replica_and_its_neighbours_are_known(run, scheduler):
    script = (
        f"until getent hosts $${macros.rank0_env} >/dev/null; do sleep 0.1; done;"
        f" echo {macros.replica_id} $${macros.rank0_env} $TORCHX_IMAGE"
    )
    app_id = run(an_app(script, replicas=3))
    name = app_id.partition(":")[2]
    hosts = ["localhost", f"{name}-r-0.{name}", f"{name}-r-0.{name}"]
    for k, host in enumerate(hosts):
        assert output(scheduler, app_id, k).split() == [str(k), host, IMAGE]


NAMES = ["a.b_C", "9-lives", "-", "ünïcode", "x" * 300, "UPPER", "a--b", "kubernetes"]


@pytest.mark.parametrize("name", NAMES)
def test_apps_and_roles_may_have_any_name(scheduler, place, monkeypatch, tmp_path, name):
    """The server checks the objects, and does not make them."""
    monkeypatch.setenv("KUBECONFIG", kubeconfig_for(place, tmp_path / "kubeconfig"))
    roles = [
        Role(other, IMAGE, entrypoint="true", num_replicas=count)
        for other, count in ((name, 1), (name.lower() + ".", 1000))
    ]
    info = scheduler.submit_dryrun(AppDef(name, roles), {})
    assert len({body["metadata"]["name"] for body in info.request.jobs}) == 2


@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(
    name=st.text(min_size=1, max_size=90).filter(lambda text: "\0" not in text and text.strip()),
    value=st.text(max_size=50).filter(lambda text: "\0" not in text),
    cpu=st.floats(0.0001, 4000),
    replicas=st.integers(1, 100_000),
    retries=st.integers(0, 5),
)
def test_the_server_accepts_whatever_an_app_is(
    scheduler, place, monkeypatch, tmp_path, name, value, cpu, replicas, retries
):
    monkeypatch.setenv("KUBECONFIG", kubeconfig_for(place, tmp_path / "kubeconfig"))
    role = Role(
        name,
        IMAGE,
        entrypoint="echo",
        args=[value, macros.replica_id],
        env={"A": value},
        num_replicas=replicas,
        max_retries=retries,
        resource=Resource(cpu=cpu, gpu=0, memMB=17),
    )
    scheduler.submit_dryrun(AppDef(name, [role]), {})  # raises what the server says


def test_shared_memory_is_as_large_as_the_limit_allows(run, scheduler):
    script = "df -k /dev/shm | tail -n 1; dd if=/dev/zero of=/dev/shm/x bs=1M count=150 2>&1"
    app = an_app(script, resource=Resource(cpu=1, gpu=0, memMB=400))
    app_id = run(app)
    kib = int(output(scheduler, app_id).split()[1])
    assert 200 * 1024 < kib <= 400 * 1024


def test_host_paths_claims_and_secrets_are_there(place, run, scheduler):
    place.create(SECRETS, "keys", stringData={"FROM_SECRET": "it is"})
    volume = f"volume-{place.namespace}"
    spec = {
        "capacity": {"storage": "1Mi"},
        "accessModes": ["ReadWriteMany"],
        "hostPath": {"path": f"/tmp/{volume}", "type": "DirectoryOrCreate"},
        "storageClassName": volume,
    }
    head = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}}
    place.kube.create(VOLUMES, "", {**head, "spec": spec})
    try:
        claim = {key: spec[key] for key in ("accessModes", "storageClassName")}
        place.create(CLAIMS, "claim", spec={**claim, "resources": {"requests": spec["capacity"]}})
        mounts = [
            BindMount("/etc/hostname", "/of-host/name", read_only=True),
            VolumeMount("claim", "/claimed"),
            DeviceMount("/dev/zero", "/dev/of-host", "r"),
        ]
        script = (
            "set -e; test -s /of-host/name; ! echo x 2>/dev/null >/of-host/name;"
            " echo kept >/claimed/file; cat /claimed/file;"
            " head -c 3 /dev/of-host | od -An -tx1; echo $FROM_SECRET"
        )
        app_id = run(an_app(script, mounts=mounts), env_from_secret=["keys"])
        assert output(scheduler, app_id).split() == ["kept", "00", "00", "00", "it", "is"]
    finally:
        place.kube.delete(VOLUMES, "", volume)


def test_devices_are_asked_for_by_their_names(place, scheduler, run):
    resource = Resource(cpu=1, gpu=2, memMB=100, devices={"vpc.amazonaws.com/efa": 4})
    app_id = scheduler.submit(
        an_app("true", resource=resource), {"gpu_resource": "amd.com/gpu", "efa_device_count": 1}
    )
    labels = f"app.kubernetes.io/instance={app_id.partition(':')[2]}"

    def made():
        return place.kube.list_objects(Selection(PODS, place.namespace, labels)).items

    (pod,) = until(made)
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert (limits["amd.com/gpu"], limits["vpc.amazonaws.com/efa"]) == ("2", "1")
    until(lambda: "Insufficient" in scheduler.describe(app_id).msg)
    scheduler.delete(app_id)
