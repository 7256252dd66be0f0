"""Names that tools give to columns of machines, begins and ends, in lower case."""

MACHINES = (
    *("worker_id", "node", "node_id", "nodeid", "node_name", "host", "hostname", "host_name", "machine", "machine_id"),
    *("rank", "gpu", "gpu_id", "device", "device_id", "instance", "instance_id", "server", "name", "component", "id"),
    *("vm", "vm_id", "vm_name", "cid", "client", "client_id", "phone", "user", "user_id", "member", "member_id", "worker"),
)
VAGUE_NAMES = ("id", "name", "component", "user", "user_id")  # other columns have these names, too
CHOICES = (  # words in names of columns that tell which rows are meant
    *("state", "status", "event", "type", "kind", "action", "condition", "result", "sku", "product", "zone", "region"),
    *("location", "model", "instance", "meter", "service", "tier", "offer", "plan", "gpu", "size"),
)
BEGINS = ("begin", "begin_time", "begins", "start", "start_time", "started", "started_at", "starts", "since", "from")
ARRIVALS = (
    *("on", "online", "connected", "connect", "arrival", "arrived", "joined", "join", "launch", "launched", "launch_time"),
    "login",
)
DEPARTURES = (
    *("off", "offline", "disconnected", "disconnect", "departure", "departed", "left", "leave", "logout"),
    *("preempted", "preempted_at", "terminated", "terminated_at", "termination_time", "evicted", "evicted_at"),
)
ENDS = ("end", "end_time", "ended", "ended_at", "ends", "stop", "stop_time", "stopped", "until", "to", "finish", "finished")
