"""TLS settings of a cluster."""

import os
import ssl
import tempfile

from .config import Cluster, Pem
from .errors import ConfigError


def tls_context(cluster: Cluster, certificate: tuple[Pem, Pem] | None) -> ssl.SSLContext | None:
    """Returns the TLS context of a cluster, with its authority and client certificate; ``None``
    without TLS.

    Raises:
        ConfigError: for a file that cannot be read, or that is not a certificate or key.
    """
    if not cluster.server.lower().startswith("https://"):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # Authorities of many clusters lack identifiers that the strict check wants; kubectl has none.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if cluster.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif cluster.ca:
        _load_authority(context, cluster.ca, cluster.name)
    else:
        context.load_default_certs()
    if certificate:
        _load_certificate(context, *certificate)
    return context


def _load_authority(context: ssl.SSLContext, ca: Pem, cluster: str) -> None:
    where = f"`{ca.path}`" if ca.path else "in the kubeconfig"
    try:
        if ca.path:
            context.load_verify_locations(cafile=ca.path)
        else:
            context.load_verify_locations(cadata=ca.data.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError, ValueError):
        msg = f"the certificate authority {where} of cluster `{cluster}` is not a PEM certificate"
        raise ConfigError(msg) from None
    except OSError as err:
        msg = f"the certificate authority {where} of cluster `{cluster}` cannot be read"
        raise ConfigError(f"{msg}: {err.strerror}") from None


def _load_certificate(context: ssl.SSLContext, certificate: Pem, key: Pem) -> None:
    """Loads a pair. OpenSSL reads files only, so content is written to a private one."""
    temporary: list[str] = []
    try:
        paths = [pem.path or _written(pem.data, temporary) for pem in (certificate, key)]
        context.load_cert_chain(*paths)
    except ssl.SSLError:
        raise ConfigError(
            f"the client certificate {certificate.path or 'in the kubeconfig'} and its key "
            f"{key.path or 'in the kubeconfig'} are not a pair in PEM"
        ) from None
    except OSError as err:
        names = " and ".join(pem.path for pem in (certificate, key) if pem.path)
        msg = f"the client certificate or key cannot be read: {err.strerror}"
        raise ConfigError(f"{msg} ({names})" if names else msg) from None
    finally:
        for path in temporary:
            os.unlink(path)


def _written(data: bytes, temporary: list[str]) -> str:
    descriptor, path = tempfile.mkstemp(prefix="torchx-kube-")  # readable by this user only
    temporary.append(path)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return path
