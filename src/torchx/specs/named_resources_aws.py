"""Named resources that correspond to instance types of AWS EC2, as ``aws_<instance type>``.

The numbers are those of https://aws.amazon.com/ec2/instance-types/, minus 4 % of the memory for the
system. They may change between releases.
"""

import warnings
from collections.abc import Callable, Mapping

from torchx.specs._constants import GiB
from torchx.specs._resource import Resource

EFA_DEVICE = "vpc.amazonaws.com/efa"
NEURON_DEVICE = "aws.amazon.com/neurondevice"
MEM_TAX = 0.96
"""Fraction of the memory that is available to jobs."""
K8S_ITYPE = "node.kubernetes.io/instance-type"
"""Capability that names the instance type."""


def instance_type_from_resource(resource: Resource) -> str | None:
    """Returns the instance type; ``None``, with a warning, if the resource does not name one."""
    if K8S_ITYPE not in resource.capabilities:
        warnings.warn(
            "cannot tell the instance type of the resource: it has no capability "
            "`torchx.specs.named_resources_aws:K8S_ITYPE`",
            UserWarning,
            stacklevel=2,
        )
        return None
    return str(resource.capabilities[K8S_ITYPE])


def _instance(
    itype: str, cpu: int, gpu: int, mem_gib: int, efa: int = 0, neuron: int = 0
) -> Resource:
    devices = {}
    if efa:
        devices[EFA_DEVICE] = efa
    if neuron:
        devices[NEURON_DEVICE] = neuron
    return Resource(
        cpu=cpu,
        gpu=gpu,
        memMB=mem_gib * int(GiB * MEM_TAX),
        capabilities={K8S_ITYPE: itype},
        devices=devices,
    )


def aws_t3_medium() -> Resource:
    """``t3.medium``."""
    return _instance("t3.medium", 2, 0, 4)


def aws_m5_large() -> Resource:
    """``m5.large``."""
    return _instance("m5.large", 2, 0, 8)


def aws_m5_xlarge() -> Resource:
    """``m5.xlarge``."""
    return _instance("m5.xlarge", 4, 0, 16)


def aws_m5_2xlarge() -> Resource:
    """``m5.2xlarge``."""
    return _instance("m5.2xlarge", 8, 0, 32)


def aws_m5_4xlarge() -> Resource:
    """``m5.4xlarge``."""
    return _instance("m5.4xlarge", 16, 0, 64)


def aws_m5_8xlarge() -> Resource:
    """``m5.8xlarge``."""
    return _instance("m5.8xlarge", 32, 0, 128)


def aws_m5_12xlarge() -> Resource:
    """``m5.12xlarge``."""
    return _instance("m5.12xlarge", 48, 0, 192)


def aws_m5_16xlarge() -> Resource:
    """``m5.16xlarge``."""
    return _instance("m5.16xlarge", 64, 0, 256)


def aws_m5_24xlarge() -> Resource:
    """``m5.24xlarge``."""
    return _instance("m5.24xlarge", 96, 0, 384)


def aws_m5_metal() -> Resource:
    """``m5.metal``."""
    return _instance("m5.metal", 96, 0, 384)


def aws_m5d_large() -> Resource:
    """``m5d.large``."""
    return _instance("m5d.large", 2, 0, 8)


def aws_m5d_xlarge() -> Resource:
    """``m5d.xlarge``."""
    return _instance("m5d.xlarge", 4, 0, 16)


def aws_m5d_2xlarge() -> Resource:
    """``m5d.2xlarge``."""
    return _instance("m5d.2xlarge", 8, 0, 32)


def aws_m5d_4xlarge() -> Resource:
    """``m5d.4xlarge``."""
    return _instance("m5d.4xlarge", 16, 0, 64)


def aws_m5d_8xlarge() -> Resource:
    """``m5d.8xlarge``."""
    return _instance("m5d.8xlarge", 32, 0, 128)


def aws_m5d_12xlarge() -> Resource:
    """``m5d.12xlarge``."""
    return _instance("m5d.12xlarge", 48, 0, 192)


def aws_m5d_16xlarge() -> Resource:
    """``m5d.16xlarge``."""
    return _instance("m5d.16xlarge", 64, 0, 256)


def aws_m5d_24xlarge() -> Resource:
    """``m5d.24xlarge``."""
    return _instance("m5d.24xlarge", 96, 0, 384)


def aws_m5d_metal() -> Resource:
    """``m5d.metal``."""
    return _instance("m5d.metal", 96, 0, 384)


def aws_c5_18xlarge() -> Resource:
    """``c5.18xlarge``."""
    return _instance("c5.18xlarge", 72, 0, 142)


def aws_p3_2xlarge() -> Resource:
    """``p3.2xlarge``."""
    return _instance("p3.2xlarge", 8, 1, 61)


def aws_p3_8xlarge() -> Resource:
    """``p3.8xlarge``."""
    return _instance("p3.8xlarge", 32, 4, 244)


def aws_p3_16xlarge() -> Resource:
    """``p3.16xlarge``."""
    return _instance("p3.16xlarge", 64, 8, 488)


def aws_p3dn_24xlarge() -> Resource:
    """``p3dn.24xlarge``."""
    return _instance("p3dn.24xlarge", 96, 8, 768, efa=1)


def aws_p4d_24xlarge() -> Resource:
    """``p4d.24xlarge``."""
    return _instance("p4d.24xlarge", 96, 8, 1152, efa=4)


def aws_p4de_24xlarge() -> Resource:
    """``p4de.24xlarge``."""
    return _instance("p4de.24xlarge", 96, 8, 1152, efa=4)


def aws_p5_48xlarge() -> Resource:
    """``p5.48xlarge``."""
    return _instance("p5.48xlarge", 192, 8, 2048, efa=32)


def aws_p5e_48xlarge() -> Resource:
    """``p5e.48xlarge``."""
    return _instance("p5e.48xlarge", 192, 8, 2048, efa=32)


def aws_p5en_48xlarge() -> Resource:
    """``p5en.48xlarge``."""
    return _instance("p5en.48xlarge", 192, 8, 2048, efa=16)


def aws_p6_b200_48xlarge() -> Resource:
    """``p6-b200.48xlarge``."""
    return _instance("p6-b200.48xlarge", 192, 8, 2048, efa=8)


def aws_p6_b300_48xlarge() -> Resource:
    """``p6-b300.48xlarge``."""
    return _instance("p6-b300.48xlarge", 192, 8, 4096, efa=16)


def aws_p6e_gb200_36xlarge() -> Resource:
    """``p6e-gb200.36xlarge``."""
    return _instance("p6e-gb200.36xlarge", 144, 4, 960, efa=16)


def aws_g4dn_xlarge() -> Resource:
    """``g4dn.xlarge``."""
    return _instance("g4dn.xlarge", 4, 1, 16)


def aws_g4dn_2xlarge() -> Resource:
    """``g4dn.2xlarge``."""
    return _instance("g4dn.2xlarge", 8, 1, 32)


def aws_g4dn_4xlarge() -> Resource:
    """``g4dn.4xlarge``."""
    return _instance("g4dn.4xlarge", 16, 1, 64)


def aws_g4dn_8xlarge() -> Resource:
    """``g4dn.8xlarge``."""
    return _instance("g4dn.8xlarge", 32, 1, 128, efa=1)


def aws_g4dn_16xlarge() -> Resource:
    """``g4dn.16xlarge``."""
    return _instance("g4dn.16xlarge", 64, 1, 256, efa=1)


def aws_g4dn_12xlarge() -> Resource:
    """``g4dn.12xlarge``."""
    return _instance("g4dn.12xlarge", 48, 4, 192, efa=1)


def aws_g4dn_metal() -> Resource:
    """``g4dn.metal``."""
    return _instance("g4dn.metal", 96, 8, 384, efa=1)


def aws_g5_xlarge() -> Resource:
    """``g5.xlarge``."""
    return _instance("g5.xlarge", 4, 1, 16)


def aws_g5_2xlarge() -> Resource:
    """``g5.2xlarge``."""
    return _instance("g5.2xlarge", 8, 1, 32)


def aws_g5_4xlarge() -> Resource:
    """``g5.4xlarge``."""
    return _instance("g5.4xlarge", 16, 1, 64)


def aws_g5_8xlarge() -> Resource:
    """``g5.8xlarge``."""
    return _instance("g5.8xlarge", 32, 1, 128, efa=1)


def aws_g5_16xlarge() -> Resource:
    """``g5.16xlarge``."""
    return _instance("g5.16xlarge", 64, 1, 256, efa=1)


def aws_g5_12xlarge() -> Resource:
    """``g5.12xlarge``."""
    return _instance("g5.12xlarge", 48, 4, 192, efa=1)


def aws_g5_24xlarge() -> Resource:
    """``g5.24xlarge``."""
    return _instance("g5.24xlarge", 96, 4, 384, efa=1)


def aws_g5_48xlarge() -> Resource:
    """``g5.48xlarge``."""
    return _instance("g5.48xlarge", 192, 8, 768, efa=1)


def aws_g6e_xlarge() -> Resource:
    """``g6e.xlarge``."""
    return _instance("g6e.xlarge", 4, 1, 32)


def aws_g6e_2xlarge() -> Resource:
    """``g6e.2xlarge``."""
    return _instance("g6e.2xlarge", 8, 1, 64)


def aws_g6e_4xlarge() -> Resource:
    """``g6e.4xlarge``."""
    return _instance("g6e.4xlarge", 16, 1, 128)


def aws_g6e_8xlarge() -> Resource:
    """``g6e.8xlarge``."""
    return _instance("g6e.8xlarge", 32, 1, 256)


def aws_g6e_16xlarge() -> Resource:
    """``g6e.16xlarge``."""
    return _instance("g6e.16xlarge", 64, 1, 512)


def aws_g6e_12xlarge() -> Resource:
    """``g6e.12xlarge``."""
    return _instance("g6e.12xlarge", 48, 4, 384)


def aws_g6e_24xlarge() -> Resource:
    """``g6e.24xlarge``."""
    return _instance("g6e.24xlarge", 96, 4, 768, efa=2)


def aws_g6e_48xlarge() -> Resource:
    """``g6e.48xlarge``."""
    return _instance("g6e.48xlarge", 192, 8, 1536, efa=4)


def aws_trn1_2xlarge() -> Resource:
    """``trn1.2xlarge``."""
    return _instance("trn1.2xlarge", 8, 0, 32, neuron=1)


def aws_trn1_32xlarge() -> Resource:
    """``trn1.32xlarge``."""
    return _instance("trn1.32xlarge", 128, 0, 512, efa=8, neuron=16)


def aws_inf2_xlarge() -> Resource:
    """``inf2.xlarge``."""
    return _instance("inf2.xlarge", 4, 0, 16, neuron=1)


def aws_inf2_8xlarge() -> Resource:
    """``inf2.8xlarge``."""
    return _instance("inf2.8xlarge", 32, 0, 128, neuron=1)


def aws_inf2_24xlarge() -> Resource:
    """``inf2.24xlarge``."""
    return _instance("inf2.24xlarge", 96, 0, 384, neuron=6)


def aws_inf2_48xlarge() -> Resource:
    """``inf2.48xlarge``."""
    return _instance("inf2.48xlarge", 192, 0, 768, neuron=12)


NAMED_RESOURCES: Mapping[str, Callable[[], Resource]] = {
    "aws_t3.medium": aws_t3_medium,
    "aws_m5.large": aws_m5_large,
    "aws_m5.xlarge": aws_m5_xlarge,
    "aws_m5.2xlarge": aws_m5_2xlarge,
    "aws_m5.4xlarge": aws_m5_4xlarge,
    "aws_m5.8xlarge": aws_m5_8xlarge,
    "aws_m5.12xlarge": aws_m5_12xlarge,
    "aws_m5.16xlarge": aws_m5_16xlarge,
    "aws_m5.24xlarge": aws_m5_24xlarge,
    "aws_m5.metal": aws_m5_metal,
    "aws_m5d.large": aws_m5d_large,
    "aws_m5d.xlarge": aws_m5d_xlarge,
    "aws_m5d.2xlarge": aws_m5d_2xlarge,
    "aws_m5d.4xlarge": aws_m5d_4xlarge,
    "aws_m5d.8xlarge": aws_m5d_8xlarge,
    "aws_m5d.12xlarge": aws_m5d_12xlarge,
    "aws_m5d.16xlarge": aws_m5d_16xlarge,
    "aws_m5d.24xlarge": aws_m5d_24xlarge,
    "aws_m5d.metal": aws_m5d_metal,
    "aws_c5.18xlarge": aws_c5_18xlarge,
    "aws_p3.2xlarge": aws_p3_2xlarge,
    "aws_p3.8xlarge": aws_p3_8xlarge,
    "aws_p3.16xlarge": aws_p3_16xlarge,
    "aws_p3dn.24xlarge": aws_p3dn_24xlarge,
    "aws_p4d.24xlarge": aws_p4d_24xlarge,
    "aws_p4de.24xlarge": aws_p4de_24xlarge,
    "aws_p5.48xlarge": aws_p5_48xlarge,
    "aws_p5e.48xlarge": aws_p5e_48xlarge,
    "aws_p5en.48xlarge": aws_p5en_48xlarge,
    "aws_p6-b200.48xlarge": aws_p6_b200_48xlarge,
    "aws_p6-b300.48xlarge": aws_p6_b300_48xlarge,
    "aws_p6e-gb200.36xlarge": aws_p6e_gb200_36xlarge,
    "aws_g4dn.xlarge": aws_g4dn_xlarge,
    "aws_g4dn.2xlarge": aws_g4dn_2xlarge,
    "aws_g4dn.4xlarge": aws_g4dn_4xlarge,
    "aws_g4dn.8xlarge": aws_g4dn_8xlarge,
    "aws_g4dn.16xlarge": aws_g4dn_16xlarge,
    "aws_g4dn.12xlarge": aws_g4dn_12xlarge,
    "aws_g4dn.metal": aws_g4dn_metal,
    "aws_g5.xlarge": aws_g5_xlarge,
    "aws_g5.2xlarge": aws_g5_2xlarge,
    "aws_g5.4xlarge": aws_g5_4xlarge,
    "aws_g5.8xlarge": aws_g5_8xlarge,
    "aws_g5.16xlarge": aws_g5_16xlarge,
    "aws_g5.12xlarge": aws_g5_12xlarge,
    "aws_g5.24xlarge": aws_g5_24xlarge,
    "aws_g5.48xlarge": aws_g5_48xlarge,
    "aws_g6e.xlarge": aws_g6e_xlarge,
    "aws_g6e.2xlarge": aws_g6e_2xlarge,
    "aws_g6e.4xlarge": aws_g6e_4xlarge,
    "aws_g6e.8xlarge": aws_g6e_8xlarge,
    "aws_g6e.16xlarge": aws_g6e_16xlarge,
    "aws_g6e.12xlarge": aws_g6e_12xlarge,
    "aws_g6e.24xlarge": aws_g6e_24xlarge,
    "aws_g6e.48xlarge": aws_g6e_48xlarge,
    "aws_trn1.2xlarge": aws_trn1_2xlarge,
    "aws_trn1.32xlarge": aws_trn1_32xlarge,
    "aws_inf2.xlarge": aws_inf2_xlarge,
    "aws_inf2.8xlarge": aws_inf2_8xlarge,
    "aws_inf2.24xlarge": aws_inf2_24xlarge,
    "aws_inf2.48xlarge": aws_inf2_48xlarge,
}
