"""Control groups (version 2): where they are mounted, what their paths mean, and whom they hold.

hierarchy   the mounted cgroup2 file system: cgroups with their IDs and levels, their processes
labels      path → container ID, pod UID, unit
names       container ID → name, pod UID → namespace and name, from files of the runtimes
known       the names of cgroups by ID, also of those that have ended
selection   what ``--cgroup``, ``--unit``, ``--container`` and ``--pod`` select
"""
