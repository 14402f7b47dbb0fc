"""System call numbers, as of Linux 6.19.

x86-64, s390x, powerpc and 32-bit CPUs have tables of their own (arch/*/…/*.tbl). The other
supported CPUs share a table (include/uapi/asm-generic/unistd.h).
A number never changes its meaning. New calls have the same number on all CPUs.
"""

from __future__ import annotations

import functools

from kprobe.tracepoints.syscall_numbers_32bit import ARM, FORMATS_32, I386, TIMES, later_names
from usdt.base.machine import KERNEL_MACHINE

__all__ = ("FORMATS", "event_names", "numbers", "read_table")

# Names in the order of their numbers; @N sets the number of the next name.
_X86_64 = """
read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction
rt_sigprocmask rt_sigreturn ioctl pread64 pwrite64 readv writev access pipe select
sched_yield mremap msync mincore madvise shmget shmat shmctl dup dup2 pause nanosleep
getitimer alarm setitimer getpid sendfile socket connect accept sendto recvfrom sendmsg
recvmsg shutdown bind listen getsockname getpeername socketpair setsockopt getsockopt clone
fork vfork execve exit wait4 kill uname semget semop semctl shmdt msgget msgsnd msgrcv
msgctl fcntl flock fsync fdatasync truncate ftruncate getdents getcwd chdir fchdir rename
mkdir rmdir creat link unlink symlink readlink chmod fchmod chown fchown lchown umask
gettimeofday getrlimit getrusage sysinfo times ptrace getuid syslog getgid setuid setgid
geteuid getegid setpgid getppid getpgrp setsid setreuid setregid getgroups setgroups
setresuid getresuid setresgid getresgid getpgid setfsuid setfsgid getsid capget capset
rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend sigaltstack utime mknod uselib
personality ustat statfs fstatfs sysfs getpriority setpriority sched_setparam sched_getparam
sched_setscheduler sched_getscheduler sched_get_priority_max sched_get_priority_min
sched_rr_get_interval mlock munlock mlockall munlockall vhangup modify_ldt pivot_root
_sysctl prctl arch_prctl adjtimex setrlimit chroot sync acct settimeofday mount umount2
swapon swapoff reboot sethostname setdomainname iopl ioperm create_module init_module
delete_module get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg afs_syscall
tuxcall security gettid readahead setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr
listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr tkill time futex
sched_setaffinity sched_getaffinity set_thread_area io_setup io_destroy io_getevents
io_submit io_cancel get_thread_area lookup_dcookie epoll_create epoll_ctl_old epoll_wait_old
remap_file_pages getdents64 set_tid_address restart_syscall semtimedop fadvise64
timer_create timer_settime timer_gettime timer_getoverrun timer_delete clock_settime
clock_gettime clock_getres clock_nanosleep exit_group epoll_wait epoll_ctl tgkill utimes
vserver mbind set_mempolicy get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive
mq_notify mq_getsetattr kexec_load waitid add_key request_key keyctl ioprio_set ioprio_get
inotify_init inotify_add_watch inotify_rm_watch migrate_pages openat mkdirat mknodat
fchownat futimesat newfstatat unlinkat renameat linkat symlinkat readlinkat fchmodat
faccessat pselect6 ppoll unshare set_robust_list get_robust_list splice tee sync_file_range
vmsplice move_pages utimensat epoll_pwait signalfd timerfd_create eventfd fallocate
timerfd_settime timerfd_gettime accept4 signalfd4 eventfd2 epoll_create1 dup3 pipe2
inotify_init1 preadv pwritev rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init
fanotify_mark prlimit64 name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg
setns getcpu process_vm_readv process_vm_writev kcmp finit_module sched_setattr
sched_getattr renameat2 seccomp getrandom memfd_create kexec_file_load bpf execveat
userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc
pkey_free statx io_pgetevents rseq uretprobe uprobe @424 pidfd_send_signal io_uring_setup
io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig fsmount fspick
pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2 process_madvise epoll_pwait2
mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule landlock_restrict_self
memfd_secret process_mrelease futex_waitv set_mempolicy_home_node cachestat fchmodat2
map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount lsm_get_self_attr
lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat listxattrat removexattrat
open_tree_attr file_getattr file_setattr listns
"""
_GENERIC = """
io_setup io_destroy io_submit io_cancel io_getevents setxattr lsetxattr fsetxattr getxattr
lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr
getcwd lookup_dcookie eventfd2 epoll_create1 epoll_ctl epoll_pwait dup dup3 fcntl
inotify_init1 inotify_add_watch inotify_rm_watch ioctl ioprio_set ioprio_get flock mknodat
mkdirat unlinkat symlinkat linkat renameat umount2 mount pivot_root nfsservctl statfs
fstatfs truncate ftruncate fallocate faccessat chdir fchdir chroot fchmod fchmodat fchownat
fchown openat close vhangup pipe2 quotactl getdents64 lseek read write readv writev pread64
pwrite64 preadv pwritev sendfile pselect6 ppoll signalfd4 vmsplice splice tee readlinkat
newfstatat fstat sync fsync fdatasync sync_file_range timerfd_create timerfd_settime
timerfd_gettime utimensat acct capget capset personality exit exit_group waitid
set_tid_address unshare futex set_robust_list get_robust_list nanosleep getitimer setitimer
kexec_load init_module delete_module timer_create timer_gettime timer_getoverrun
timer_settime timer_delete clock_settime clock_gettime clock_getres clock_nanosleep syslog
ptrace sched_setparam sched_setscheduler sched_getscheduler sched_getparam sched_setaffinity
sched_getaffinity sched_yield sched_get_priority_max sched_get_priority_min
sched_rr_get_interval restart_syscall kill tkill tgkill sigaltstack rt_sigsuspend
rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigreturn
setpriority getpriority reboot setregid setgid setreuid setuid setresuid getresuid setresgid
getresgid setfsuid setfsgid times setpgid getpgid getsid setsid getgroups setgroups uname
sethostname setdomainname getrlimit setrlimit getrusage umask prctl getcpu gettimeofday
settimeofday adjtimex getpid getppid getuid geteuid getgid getegid gettid sysinfo mq_open
mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr msgget msgctl msgrcv msgsnd
semget semctl semtimedop semop shmget shmctl shmat shmdt socket socketpair bind listen
accept connect getsockname getpeername sendto recvfrom setsockopt getsockopt shutdown
sendmsg recvmsg readahead brk munmap mremap add_key request_key keyctl clone execve mmap
fadvise64 swapon swapoff mprotect msync mlock munlock mlockall munlockall mincore madvise
remap_file_pages mbind get_mempolicy set_mempolicy migrate_pages move_pages
rt_tgsigqueueinfo perf_event_open accept4 recvmmsg @260 wait4
prlimit64 fanotify_init fanotify_mark @266 clock_adjtime syncfs setns sendmmsg
process_vm_readv process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2
seccomp getrandom memfd_create bpf execveat userfaultfd membarrier mlock2 copy_file_range
preadv2 pwritev2 pkey_mprotect pkey_alloc pkey_free statx io_pgetevents rseq kexec_file_load
@408 @424
pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount
fsopen fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2
process_madvise epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset
landlock_add_rule landlock_restrict_self memfd_secret process_mrelease futex_waitv
set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake futex_wait
futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal
setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr file_setattr
listns
"""
_S390X = """
@1 exit fork read write open close restart_syscall creat link unlink execve chdir @14 mknod chmod
@19 lseek getpid mount umount @26 ptrace alarm @29 pause utime @33 access nice @36 sync kill
rename mkdir rmdir dup pipe times @45 brk @48 signal @51 acct umount2 @54 ioctl fcntl @57 setpgid
@60 umask chroot ustat dup2 getppid getpgrp setsid sigaction @72 sigsuspend sigpending sethostname
setrlimit @77 getrusage gettimeofday settimeofday @83 symlink @85 readlink uselib swapon reboot
readdir mmap munmap truncate ftruncate fchmod @96 getpriority setpriority @99 statfs fstatfs @102
socketcall syslog setitimer getitimer stat lstat fstat @110 lookup_dcookie vhangup idle @114 wait4
swapoff sysinfo ipc fsync sigreturn clone setdomainname uname @124 adjtimex mprotect sigprocmask
create_module init_module delete_module get_kernel_syms quotactl getpgid fchdir bdflush sysfs
personality afs_syscall @141 getdents select flock msync readv writev getsid fdatasync _sysctl
mlock munlock mlockall munlockall sched_setparam sched_getparam sched_setscheduler
sched_getscheduler sched_yield sched_get_priority_max sched_get_priority_min sched_rr_get_interval
nanosleep mremap @167 query_module poll nfsservctl @172 prctl rt_sigreturn rt_sigaction
rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend pread64 pwrite64 @183
getcwd capget capset sigaltstack sendfile getpmsg putpmsg vfork getrlimit @198 lchown getuid
getgid geteuid getegid setreuid setregid getgroups setgroups fchown setresuid getresuid setresgid
getresgid chown setuid setgid setfsuid setfsgid pivot_root mincore madvise getdents64 @222
readahead @224 setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr
flistxattr removexattr lremovexattr fremovexattr gettid tkill futex sched_setaffinity
sched_getaffinity tgkill @243 io_setup io_destroy io_getevents io_submit io_cancel exit_group
epoll_create epoll_ctl epoll_wait set_tid_address fadvise64 timer_create timer_settime
timer_gettime timer_getoverrun timer_delete clock_settime clock_gettime clock_getres
clock_nanosleep @265 statfs64 fstatfs64 remap_file_pages mbind get_mempolicy set_mempolicy mq_open
mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr kexec_load add_key request_key
keyctl waitid ioprio_set ioprio_get inotify_init inotify_add_watch inotify_rm_watch migrate_pages
openat mkdirat mknodat fchownat futimesat newfstatat unlinkat renameat linkat symlinkat readlinkat
fchmodat faccessat pselect6 ppoll unshare set_robust_list get_robust_list splice sync_file_range
tee vmsplice move_pages getcpu epoll_pwait utimes fallocate utimensat signalfd timerfd eventfd
timerfd_create timerfd_settime timerfd_gettime signalfd4 eventfd2 inotify_init1 pipe2 dup3
epoll_create1 preadv pwritev rt_tgsigqueueinfo perf_event_open fanotify_init fanotify_mark
prlimit64 name_to_handle_at open_by_handle_at clock_adjtime syncfs setns process_vm_readv
process_vm_writev s390_runtime_instr kcmp finit_module sched_setattr sched_getattr renameat2
seccomp getrandom memfd_create bpf s390_pci_mmio_write s390_pci_mmio_read execveat userfaultfd
membarrier recvmmsg sendmmsg socket socketpair bind connect listen accept4 getsockopt setsockopt
getsockname getpeername sendto sendmsg recvfrom recvmsg shutdown mlock2 copy_file_range preadv2
pwritev2 s390_guarded_storage statx s390_sthyi kexec_file_load io_pgetevents rseq pkey_mprotect
pkey_alloc pkey_free @392 semtimedop semget semctl shmget shmctl shmat shmdt msgget msgsnd msgrcv
msgctl @424 pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount
fsopen fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2
process_madvise epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule
landlock_restrict_self memfd_secret process_mrelease futex_waitv set_mempolicy_home_node cachestat
fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount
lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat listxattrat
removexattrat open_tree_attr file_getattr file_setattr listns
"""
_POWERPC64 = """
restart_syscall exit fork read write open close waitpid creat link unlink execve chdir time mknod
chmod lchown break oldstat lseek getpid mount umount setuid getuid stime ptrace alarm oldfstat
pause utime stty gtty access nice ftime sync kill rename mkdir rmdir dup pipe times prof brk
setgid getgid signal geteuid getegid acct umount2 lock ioctl fcntl mpx setpgid ulimit oldolduname
umask chroot ustat dup2 getppid getpgrp setsid sigaction sgetmask ssetmask setreuid setregid
sigsuspend sigpending sethostname setrlimit getrlimit getrusage gettimeofday settimeofday
getgroups setgroups select symlink oldlstat readlink uselib swapon reboot readdir mmap munmap
truncate ftruncate fchmod fchown getpriority setpriority profil statfs fstatfs ioperm socketcall
syslog setitimer getitimer stat lstat fstat olduname iopl vhangup idle vm86 wait4 swapoff sysinfo
ipc fsync sigreturn clone setdomainname uname modify_ldt adjtimex mprotect sigprocmask
create_module init_module delete_module get_kernel_syms quotactl getpgid fchdir bdflush sysfs
personality afs_syscall setfsuid setfsgid _llseek getdents _newselect flock msync readv writev
getsid fdatasync _sysctl mlock munlock mlockall munlockall sched_setparam sched_getparam
sched_setscheduler sched_getscheduler sched_yield sched_get_priority_max sched_get_priority_min
sched_rr_get_interval nanosleep mremap setresuid getresuid query_module poll nfsservctl setresgid
getresgid prctl rt_sigreturn rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait
rt_sigqueueinfo rt_sigsuspend pread64 pwrite64 chown getcwd capget capset sigaltstack sendfile
getpmsg putpmsg vfork ugetrlimit readahead @198 pciconfig_read pciconfig_write pciconfig_iobase
multiplexer getdents64 pivot_root @205 madvise mincore gettid tkill setxattr lsetxattr fsetxattr
getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr
futex sched_setaffinity sched_getaffinity @225 tuxcall @227 io_setup io_destroy io_getevents
io_submit io_cancel set_tid_address fadvise64 exit_group lookup_dcookie epoll_create epoll_ctl
epoll_wait remap_file_pages timer_create timer_settime timer_gettime timer_getoverrun timer_delete
clock_settime clock_gettime clock_getres clock_nanosleep swapcontext tgkill utimes statfs64
fstatfs64 @255 rtas sys_debug_setcontext @258 migrate_pages mbind get_mempolicy set_mempolicy
mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr kexec_load add_key
request_key keyctl waitid ioprio_set ioprio_get inotify_init inotify_add_watch inotify_rm_watch
spu_run spu_create pselect6 ppoll unshare splice tee vmsplice openat mkdirat mknodat fchownat
futimesat newfstatat unlinkat renameat linkat symlinkat readlinkat fchmodat faccessat
get_robust_list set_robust_list move_pages getcpu epoll_pwait utimensat signalfd timerfd_create
eventfd sync_file_range2 fallocate subpage_prot timerfd_settime timerfd_gettime signalfd4 eventfd2
epoll_create1 dup3 pipe2 inotify_init1 perf_event_open preadv pwritev rt_tgsigqueueinfo
fanotify_init fanotify_mark prlimit64 socket bind connect listen accept getsockname getpeername
socketpair send sendto recv recvfrom shutdown setsockopt getsockopt sendmsg recvmsg recvmmsg
accept4 name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg setns process_vm_readv
process_vm_writev finit_module kcmp sched_setattr sched_getattr renameat2 seccomp getrandom
memfd_create bpf execveat switch_endian userfaultfd membarrier @378 mlock2 copy_file_range preadv2
pwritev2 kexec_file_load statx pkey_alloc pkey_free pkey_mprotect rseq io_pgetevents @392
semtimedop semget semctl shmget shmctl shmat shmdt msgget msgsnd msgrcv msgctl @424
pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen
fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2
process_madvise epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule
landlock_restrict_self memfd_secret process_mrelease futex_waitv set_mempolicy_home_node cachestat
fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount
lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat listxattrat
removexattrat open_tree_attr file_getattr file_setattr listns
"""

# Calls from number 424 on, which all CPUs share.
_NEW = _X86_64[_X86_64.index("@424") :]
_OWN = {
    "x86_64": _X86_64,
    "s390x": _S390X,
    "ppc64": _POWERPC64,
    "ppc64le": _POWERPC64,
    "i386": f"{I386} {TIMES} {_NEW}",
    "arm": f"{ARM} {TIMES} {_NEW}",
}

#: Name → name of the kernel's function, and so of the event, if it differs.
FORMATS = {
    "fstat": "newfstat",
    "lstat": "newlstat",
    "sendfile": "sendfile64",
    "stat": "newstat",
    "umount2": "umount",
    "uname": "newuname",
}
# CPU → its version of FORMATS.
_FORMATS_OF = {
    "i386": FORMATS_32,
    "arm": FORMATS_32 | {"semctl": "old_semctl", "msgctl": "old_msgctl", "shmctl": "old_shmctl"},
    "s390x": FORMATS
    | {"mmap": "old_mmap", "personality": "s390_personality", "ipc": "s390_ipc"}
    | {"fadvise64": "fadvise64_64", "readdir": "old_readdir", "umount": "oldumount"},
    "ppc64": FORMATS
    | {"_llseek": "llseek", "_newselect": "select", "ugetrlimit": "getrlimit"}
    | {"personality": "ppc64_personality", "fadvise64": "ppc64_fadvise64"}
    | {"umount": "oldumount"},
}
_FORMATS_OF["ppc64le"] = _FORMATS_OF["ppc64"]


@functools.cache
def numbers() -> dict[str, int]:
    """Return name → number of the system calls of this kernel's CPU."""
    return read_table(_OWN.get(KERNEL_MACHINE, _GENERIC))


def read_table(text: str) -> dict[str, int]:
    """Return name → number from names in the order of numbers; ``@N`` sets the next number."""
    table, position = {}, 0
    for word in text.split():
        if word.startswith("@"):
            position = int(word[1:])
        else:
            table[word] = position
            position += 1
    return table


def event_names(name: str) -> tuple[str, ...]:
    """Return possible names of a call's events after ``sys_enter_``, the likeliest first."""
    table = _FORMATS_OF.get(KERNEL_MACHINE, FORMATS)
    if name in table:
        return table[name], name
    return later_names(name) if KERNEL_MACHINE in ("i386", "arm") else (name,)
