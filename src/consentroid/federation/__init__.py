"""NVIDIA FLARE: kits, processes, the job, its controller and sites, the administrator's side, the demonstration."""
