"""A namespace follows one API, and is asked for answers of the other. On nginx."""

import pytest

from harness import other_api
from harness.status import told
from test_chain import Stand

pytestmark = pytest.mark.once("the core decides, one library for every nginx")
STATUS = "server { listen 127.0.0.1:@port_status@; location / { sszip_status on; } }"


class WithPage:
    """A server's status page, on a port of its own."""

    def __init__(self, nginx):
        self.port = nginx.ports["port_status"]


@pytest.mark.parametrize("followed", other_api.FOLLOWED)
def test_answers_at_the_head_of_the_other_api_are_not_stored(followed):
    head = f"http://%s api={followed} interval=100ms"
    with Stand(head=head, more=STATUS) as stand:
        page = WithPage(stand.nginx)
        other_api.judge(stand, followed, lambda: told(page, "/")["reasons"], workers=2)
