"""The egress proxy: a program that runs in a container beside a sandbox and lets out what a policy allows.

The package is copied into the container as it is: it imports nothing but itself and the standard library and
runs on Python 3.8 and later. It speaks HTTP's two ways of using a proxy, `CONNECT host:port` (for TLS and all
else) and requests with an absolute URI (RFC 9112, 3.2.2 and 3.2.3), one for each connection. A name is looked
up here, once, and the connection goes to an address that was judged. Its one argument is the path of a JSON
file:

    mode     allowlist or denylist
    hosts    entries: names, `*.wildcards` (below the domain, not itself), addresses and CIDRs, each with or
             without `:port`
    address  where to listen (`port` beside it)
    own      addresses of the engine's machine, which count as local
    peers    the network whose addresses may use the proxy; all where it is missing

Local addresses (private, link-local, the machine's own) can be reached only where an entry of an allow list is
exactly that name, or an address or CIDR that holds it; loopback and multicast never.

Each target is said once on standard output, as a JSON list: `["allowed", "host:port"]` or `["refused", ...]`;
where there are too many, `["more allowed", ""]`, or likewise of refused ones, says so.
"""
