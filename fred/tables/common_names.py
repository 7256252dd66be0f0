"""Names that tools give to columns of machines, begins and ends, in lower case."""

MACHINES = (
    *("worker_id", "node", "node_id", "nodeid", "node_name", "host", "hostname", "host_name", "machine", "machine_id"),
    *("rank", "gpu", "gpu_id", "device", "device_id", "instance", "instance_id", "server", "name", "component", "id"),
    *("client", "client_id", "phone", "user", "user_id", "member", "member_id", "worker"),
)
BEGINS = ("begin", "begin_time", "begins", "start", "start_time", "started", "started_at", "starts", "since", "from")
ENDS = ("end", "end_time", "ended", "ended_at", "ends", "stop", "stop_time", "stopped", "until", "to", "finish", "finished")
