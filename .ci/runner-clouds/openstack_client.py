"""OpenStack's own client uses the fake cloud of the tests, to prove that the fake behaves like OpenStack."""

import base64
import importlib.metadata
import os
import subprocess
import sys

import openstack

CREDENTIAL = "0123456789abcdef0123456789abcdef"
SECRET = "planted-credential-secret"


def connect(auth_url, **more):
    return openstack.connection.Connection(
        auth_type="v3applicationcredential",
        auth={
            "auth_url": auth_url,
            "application_credential_id": CREDENTIAL,
            "application_credential_secret": more.get("secret", SECRET),
        },
        region_name="RegionOne",
        compute_default_microversion="2.79",
    )


def refuses(what, error, work):
    try:
        work()
    except error:
        return
    raise AssertionError(f"{what} was not refused")


def main():
    # Variables for another cloud must not affect this one.
    for name in [name for name in os.environ if name.startswith("OS_")]:
        del os.environ[name]
    fake = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        use(fake.stdout.readline().strip())
    finally:
        fake.stdin.close()
        fake.wait()


def use(auth_url):
    cloud = connect(auth_url)
    images = list(cloud.image.images(name="Debian 13"))
    assert len(images) == 2 and all(image.status == "active" for image in images), images
    newest = max(images, key=lambda image: image.created_at)
    flavor = cloud.compute.find_flavor("large")
    assert flavor.ram == 8192, flavor
    network = cloud.network.find_network("public")
    assert network is not None
    assert [group.name for group in cloud.network.security_groups(name="default")] == ["default"]
    assert cloud.compute.find_flavor("huge") is None

    user_data = base64.b64encode(b"#cloud-config\n").decode()
    servers = []
    for number in range(3):
        server = cloud.compute.create_server(
            name=f"s{number}",
            image_id=newest.id,
            flavor_id=flavor.id,
            networks=[{"uuid": network.id}],
            config_drive=True,
            metadata={"archproof-run": "r1"},
            user_data=user_data,
        )
        servers.append(cloud.compute.wait_for_server(server, interval=0.1, wait=30))
    assert all(server.status == "ACTIVE" for server in servers), servers
    assert {server.name for server in cloud.compute.servers(limit=1)} == {"s0", "s1", "s2"}
    assert servers[0].metadata == {"archproof-run": "r1"}, servers[0].metadata

    bad = {"image_id": newest.id, "flavor_id": flavor.id, "networks": "auto"}
    for what, change in [
        ("a flavor that does not exist", {"flavor_id": "f-huge"}),
        ("user data that is not base64", {"user_data": "#cloud-config"}),
        ("user data that is too long", {"user_data": "A" * 65536}),
        ("a long value of metadata", {"metadata": {"k": "v" * 256}}),
    ]:
        refuses(what, openstack.exceptions.BadRequestException, lambda: cloud.compute.create_server(name="x", **{**bad, **change}))
    for number in range(3, 5):
        cloud.compute.create_server(name=f"s{number}", **bad)
    refuses("more than the quota", openstack.exceptions.ForbiddenException, lambda: cloud.compute.create_server(name="s6", **bad))

    for server in list(cloud.compute.servers()):
        cloud.compute.delete_server(server)
        cloud.compute.wait_for_delete(server, interval=0.1, wait=30)
    assert list(cloud.compute.servers()) == []
    refuses("a wrong secret", openstack.exceptions.SDKException, lambda: connect(auth_url, secret="no").authorize())
    print("openstacksdk", importlib.metadata.version("openstacksdk"), "works with the fake cloud of the tests")


main()
