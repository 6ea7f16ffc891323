//! Lists of system calls: read from `seccomp/*.toml`, where each rule says why, and compiled for this machine.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use serde::Deserialize;

use crate::{Error, Result};

/// A list by its name and text.
#[derive(Debug, Clone, Copy)]
pub struct List {
    name: &'static str,
    text: &'static str,
}

/// What no thread of the worker may do.
pub const EVERY: List = List { name: "every", text: include_str!("seccomp/every.toml") };
/// All that the control thread may do.
pub const CONTROL: List = List { name: "control", text: include_str!("seccomp/control.toml") };
/// All that the compute threads may do.
pub const COMPUTE: List = List { name: "compute", text: include_str!("seccomp/compute.toml") };

/// All that the thread that decodes clips may do.
pub const DECODE: List = List { name: "decode", text: include_str!("seccomp/decode.toml") };
/// All that the thread that encodes clips may do.
pub const ENCODE: List = List { name: "encode", text: include_str!("seccomp/encode.toml") };
/// All that the thread that speaks to cameras may do.
pub const CAPTURE: List = List { name: "capture", text: include_str!("seccomp/capture.toml") };

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    rule: Vec<RawRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    r#do: Do,
    why: String,
    calls: Vec<String>,
    #[serde(default)]
    when: Vec<RawWhen>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Do {
    /// All else fails with EPERM.
    Allow,
    /// The process dies; all else is left to the other lists.
    Kill,
    /// ENOSYS; all else is left to the other lists.
    Missing,
}

/// Argument `arg`, masked, equals.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWhen {
    arg: u8,
    mask: Option<u64>,
    equals: u64,
}

/// Compiles a list to the filters that together enforce it, in the order in which to install them.
///
/// # Errors
/// `Rules`.
pub fn compile(list: List) -> Result<Vec<BpfProgram>> {
    let broken = |detail: String| Error::Rules { list: list.name, detail };
    let raw: Raw = toml::from_str(list.text).map_err(|e| broken(e.to_string()))?;
    let arch =
        TargetArch::try_from(std::env::consts::ARCH).map_err(|e| broken(format!("{e:?}")))?;
    let mut programs = Vec::new();
    for (what, hit, miss) in [
        (Do::Kill, SeccompAction::KillProcess, SeccompAction::Allow),
        (Do::Missing, SeccompAction::Errno(ENOSYS), SeccompAction::Allow),
        (Do::Allow, SeccompAction::Allow, SeccompAction::Errno(EPERM)),
    ] {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
        for rule in raw.rule.iter().filter(|r| r.r#do == what) {
            if rule.why.is_empty() {
                return Err(broken("a rule does not say why".to_owned()));
            }
            for call in &rule.calls {
                let Some(number) = number(call).map_err(broken)? else { continue };
                let entry = rules.entry(number).or_default();
                if !rule.when.is_empty() {
                    entry.push(conditions(&rule.when).map_err(|e| broken(format!("{e:?}")))?);
                }
            }
        }
        if rules.is_empty() {
            continue;
        }
        let filter = SeccompFilter::new(rules, miss, hit, arch);
        let program = filter.and_then(BpfProgram::try_from);
        programs.push(program.map_err(|e| broken(format!("{e:?}")))?);
    }
    Ok(programs)
}

const EPERM: u32 = libc::EPERM as u32;
const ENOSYS: u32 = libc::ENOSYS as u32;

fn conditions(when: &[RawWhen]) -> std::result::Result<SeccompRule, seccompiler::BackendError> {
    let one = |w: &RawWhen| {
        let op = w.mask.map_or(SeccompCmpOp::Eq, SeccompCmpOp::MaskedEq);
        SeccompCondition::new(w.arg, SeccompCmpArgLen::Qword, op, w.equals)
    };
    SeccompRule::new(when.iter().map(one).collect::<std::result::Result<_, _>>()?)
}

macro_rules! table {
    ($name:expr; $($call:literal $number:ident)*) => {
        match $name {
            $($call => Ok(Some(libc::$number)),)*
            // An old call that younger machines never had.
            "poll" => Ok(POLL),
            unknown => Err(format!("no system call `{unknown}` is known here")),
        }
    };
}

#[cfg(target_arch = "x86_64")]
const POLL: Option<i64> = Some(libc::SYS_poll);
#[cfg(not(target_arch = "x86_64"))]
const POLL: Option<i64> = None;

/// The number of a call on this machine; `None` when the machine has no such call.
fn number(name: &str) -> std::result::Result<Option<i64>, String> {
    table! { name;
        "add_key" SYS_add_key
        "bpf" SYS_bpf
        "brk" SYS_brk
        "chroot" SYS_chroot
        "clock_gettime" SYS_clock_gettime
        "clock_nanosleep" SYS_clock_nanosleep
        "clone" SYS_clone
        "clone3" SYS_clone3
        "close" SYS_close
        "delete_module" SYS_delete_module
        "exit" SYS_exit
        "exit_group" SYS_exit_group
        "fcntl" SYS_fcntl
        "finit_module" SYS_finit_module
        "fstat" SYS_fstat
        "ftruncate" SYS_ftruncate
        "futex" SYS_futex
        "getpid" SYS_getpid
        "getrandom" SYS_getrandom
        "gettid" SYS_gettid
        "init_module" SYS_init_module
        "io_uring_setup" SYS_io_uring_setup
        "ioctl" SYS_ioctl
        "kexec_load" SYS_kexec_load
        "keyctl" SYS_keyctl
        "lseek" SYS_lseek
        "madvise" SYS_madvise
        "mmap" SYS_mmap
        "mount" SYS_mount
        "mprotect" SYS_mprotect
        "mremap" SYS_mremap
        "munmap" SYS_munmap
        "nanosleep" SYS_nanosleep
        "open_by_handle_at" SYS_open_by_handle_at
        "perf_event_open" SYS_perf_event_open
        "pidfd_getfd" SYS_pidfd_getfd
        "pidfd_open" SYS_pidfd_open
        "pivot_root" SYS_pivot_root
        "ppoll" SYS_ppoll
        "prctl" SYS_prctl
        "pread64" SYS_pread64
        "process_madvise" SYS_process_madvise
        "process_vm_readv" SYS_process_vm_readv
        "process_vm_writev" SYS_process_vm_writev
        "ptrace" SYS_ptrace
        "pwrite64" SYS_pwrite64
        "read" SYS_read
        "reboot" SYS_reboot
        "recvmsg" SYS_recvmsg
        "request_key" SYS_request_key
        "restart_syscall" SYS_restart_syscall
        "rseq" SYS_rseq
        "rt_sigaction" SYS_rt_sigaction
        "rt_sigprocmask" SYS_rt_sigprocmask
        "rt_sigreturn" SYS_rt_sigreturn
        "sched_getaffinity" SYS_sched_getaffinity
        "sched_yield" SYS_sched_yield
        "sendmsg" SYS_sendmsg
        "set_robust_list" SYS_set_robust_list
        "setns" SYS_setns
        "sigaltstack" SYS_sigaltstack
        "umount2" SYS_umount2
        "unshare" SYS_unshare
        "userfaultfd" SYS_userfaultfd
        "write" SYS_write
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_compiles_for_this_machine() {
        assert_eq!(compile(EVERY).unwrap().len(), 2);
        assert_eq!(compile(CONTROL).unwrap().len(), 1);
        assert_eq!(compile(COMPUTE).unwrap().len(), 1);
        assert_eq!(compile(CAPTURE).unwrap().len(), 1);
    }

    #[test]
    fn no_list_lets_a_file_a_socket_or_a_process_be_made() {
        let never = [
            "open",
            "openat",
            "openat2",
            "creat",
            "socket",
            "socketpair",
            "connect",
            "bind",
            "listen",
            "accept",
            "accept4",
            "execve",
            "execveat",
            "fork",
            "vfork",
            "unlink",
            "rename",
            "ioctl",
            "kill",
            "tgkill",
            "memfd_create",
        ];
        let sockets = ["recvmsg", "sendmsg", "recvfrom", "sendto"];
        let allowed = |list: List| -> Vec<String> {
            let raw: Raw = toml::from_str(list.text).unwrap();
            let rules = raw.rule.into_iter().filter(|r| r.r#do == Do::Allow);
            rules.flat_map(|r| r.calls).collect()
        };
        for call in never {
            assert!(!allowed(CONTROL).iter().any(|c| c == call), "{call}");
            assert!(!allowed(COMPUTE).iter().any(|c| c == call), "{call}");
        }
        for call in sockets {
            assert!(!allowed(COMPUTE).iter().any(|c| c == call), "{call}");
        }
    }

    #[test]
    fn only_the_capture_list_knows_drivers_and_only_v4l2() {
        let drivers = |list: List| {
            let raw: Raw = toml::from_str(list.text).unwrap();
            raw.rule
                .into_iter()
                .filter(|r| r.calls.iter().any(|c| c == "ioctl"))
                .collect::<Vec<_>>()
        };
        for list in [EVERY, CONTROL, COMPUTE, DECODE, ENCODE] {
            assert!(drivers(list).is_empty(), "{}", list.name);
        }
        let [rule] = <[RawRule; 1]>::try_from(drivers(CAPTURE)).ok().unwrap();
        let [when] = rule.when.as_slice() else { panic!("one condition") };
        assert_eq!((when.arg, when.mask, when.equals), (1, Some(0xff00), 0x5600));
        let never = ["open", "openat", "socket", "write", "pwrite64", "clone", "sendmsg"];
        let raw: Raw = toml::from_str(CAPTURE.text).unwrap();
        assert!(!raw.rule.iter().flat_map(|r| &r.calls).any(|c| never.contains(&c.as_str())));
    }

    #[test]
    fn a_rule_without_a_reason_or_with_an_unknown_call_is_refused() {
        for text in [
            "[[rule]]\ndo = \"allow\"\nwhy = \"\"\ncalls = [\"read\"]",
            "[[rule]]\ndo = \"allow\"\nwhy = \"x\"\ncalls = [\"raed\"]",
        ] {
            assert!(matches!(compile(List { name: "t", text }), Err(Error::Rules { .. })));
        }
    }
}
