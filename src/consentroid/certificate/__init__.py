"""The certificate: what a run proves, as a document that anybody can check (`verify/`)."""
