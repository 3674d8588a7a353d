"""A site checks a certificate on its own rows and signs what it found: its part of a verification without pooling.

The certificate comes from elsewhere and may be made to fish for answers. So it must be about a run of this site: the
same rows, prices, coordinates and claims as the site kept (`kept_run.py`). Then the independent checker (`verify/`)
asks the rows again. What leaves is the site's share of all sums, under masks, and a signature; or a refusal without a
value.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..certificate.document import Certificate
from ..certificate.reading import certificate_from, parse_json
from ..certificate.statements import Statement, Statements, Subject
from ..core.errors import CertificateInvalid, InvalidInput, NodeRefused
from ..core.problem import NodeData
from ..core.search import SHIFT
from ..protocol.messages import Coordinates
from ..site.fixed_point import HEADROOM, Scales, exponent
from ..site.masks import SiteMasks
from ..verify import site_share
from ..verify.limbs import LARGEST_QUANTUM, MOST_SITES, limb_bits
from .kept_run import KeptRun, coordinates_as_dict
from .signing import Question

ERRORS = 60  # squares of rounding errors are smaller than squares of lengths by this power of two
DOES_NOT_HOLD = "the certificate does not hold on this site's rows; the site's own log has the details"

log = logging.getLogger(__name__)


def read_certificate(content: bytes) -> Certificate:
    try:
        return certificate_from(parse_json(content.decode("utf-8"), "the certificate"))
    except (CertificateInvalid, UnicodeDecodeError) as error:
        log.warning("certificate refused: %s", error)
        raise NodeRefused("what is to be verified is not a certificate; the site's own log has the details") from None


def check_of_this_run(certificate: Certificate, run: KeptRun, rows: str) -> None:
    """Rows and coordinates are those under which the claims were made."""
    notes = run.notes()
    if notes.rows != rows:
        raise NodeRefused("the rows are not those of the run; a certificate is about the rows as they were")
    stated = coordinates_as_dict(Coordinates(certificate.origin, certificate.basis, certificate.scale))
    if notes.coordinates != stated or certificate.shift != SHIFT:
        raise NodeRefused("the certificate has other coordinates than the run had")


def quanta_of(certificate: Certificate, weight: int) -> NDArray[np.int64]:
    """Units (log2) of the numbers of a share, from what everybody knows: a power of two above the weight of all rows,
    domain and coordinates of the certificate. The order is that of `verify/shares.py`."""
    length_x = exponent(float(np.abs(certificate.domain).max(initial=0.0)))
    at = Coordinates(certificate.origin, certificate.basis, certificate.scale)
    length_y = Scales(len(certificate.sites), weight, length_x).with_coordinates(at).length_y
    assert length_y is not None
    unit = weight + HEADROOM - 2 * limb_bits(len(certificate.sites))
    quanta = [unit + 2 * length_x, unit + 2 * length_y - ERRORS, unit, unit + length_y, unit + 2 * length_y]
    if max(abs(quantum) for quantum in quanta) > LARGEST_QUANTUM:
        raise NodeRefused("domain or weights are too large for a verification")
    return np.array(quanta, dtype=np.int64)


def attest(
    question: Question, certificate: Certificate, data: NodeData, run: KeptRun, scaling: dict[str, Any] | None,
    masks: SiteMasks | None, sign: Callable[[bytes], bytes], signer: bytes, coarse_cost: bool,
) -> bytes:  # fmt: skip
    """The site's signed statement, as it is sent; `coarse_cost`: its policy has it round costs up, as in the run."""
    if not 1 <= len(certificate.sites) <= MOST_SITES or (masks is None) != (len(certificate.sites) == 1):
        raise NodeRefused("masks are due exactly where there are several sites")
    weight = exponent(float(data.weights.sum())) if masks is None else masks.scales.weight
    quanta = quanta_of(certificate, weight)
    try:
        share = site_share(
            certificate, data.name, data.points, data.weights, run.prices, run.claims(), quanta, coarse_cost
        )
    except (CertificateInvalid, InvalidInput) as error:  # their words may quote rows
        log.warning("certificate %s: %s", certificate.fingerprint, error)
        raise NodeRefused(DOES_NOT_HOLD) from None
    words = np.ascontiguousarray(share).view(np.uint64).ravel()
    agreed = ""
    if masks is not None:
        words = masks.masked(words, question.number, question.digest)
        agreed = hashlib.sha256(masks.transcript + question.number.to_bytes(8, "big") + question.digest).hexdigest()
    subject = Subject(certificate.fingerprint, certificate.sites, scaling, tuple(quanta.tolist()), agreed)
    plain = Statement(data.name, int(time.time()), words, signer)
    signed = Statement(plain.site, plain.time, plain.words, signer, sign(plain.signed(subject)))
    return json.dumps(Statements(subject, (signed,)).to_json()).encode()
