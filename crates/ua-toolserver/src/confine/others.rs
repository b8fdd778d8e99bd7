//! Other processes, where the kernel makes no namespaces: Landlock keeps a program from seeing into them and from signalling them, and does not
//! know of what else one process of a user may do to another.
//!
//! - **Limits, priorities, schedulers and processors** are set of any process by its number: a limit of one second of computing, or of files of
//!   no size, ends it. A program sets its own, by the number 0.
//! - **System V IPC and POSIX message queues** have names and rights, but no paths: whatever of the user's is there could be read and changed.
//!   There are none.
//!
//! What only reads (`sched_getaffinity`, `getpriority`, `getpgid`) stays: it tells that a number is in use, and how a process is scheduled.

use seccompiler::sock_filter;

use super::calls::{ALLOW, ENOSYS, EPERM, ERRNO, FIRST_ARGUMENT, IF_EQUAL, SECOND_ARGUMENT, end, if_equal, load};

/// Calls that reach other processes, by how much of them stays.
struct Numbers {
    /// `prlimit64`, `sched_setaffinity`, `sched_setparam`, `sched_setscheduler`, `sched_setattr`: the first argument is a process.
    a_process: [u32; 5],
    /// `setpriority`, `ioprio_set`, with the kind that means one process (of the others a group and a user): the second argument is which.
    of_some_kind: [(u32, u32); 2],
    /// `shmget`, `shmat`, `shmctl`, `shmdt`, `semget`, `semop`, `semctl`, `semtimedop`, `msgget`, `msgsnd`, `msgrcv`, `msgctl`; of `mq_open`,
    /// `mq_unlink` and what follows them.
    ipc: &'static [u32],
}

const NUMBERS: Option<Numbers> = if cfg!(target_arch = "x86_64") {
    Some(Numbers {
        a_process: [302, 203, 142, 144, 314],
        of_some_kind: [(141, 0), (251, 1)],
        ipc: &[29, 30, 31, 67, 64, 65, 66, 220, 68, 69, 70, 71, 240, 241, 242, 243, 244, 245],
    })
} else if cfg!(target_arch = "aarch64") {
    Some(Numbers {
        a_process: [261, 122, 118, 119, 274],
        of_some_kind: [(140, 0), (30, 1)],
        ipc: &[194, 196, 195, 197, 190, 193, 191, 192, 186, 189, 188, 187, 180, 181, 182, 183, 184, 185],
    })
} else {
    None
};

/// What a filter says about each of these calls.
pub(super) fn rules() -> Vec<(u32, Vec<sock_filter>)> {
    let Some(Numbers { a_process, of_some_kind, ipc }) = NUMBERS else { return Vec::new() };
    let own = a_process.map(|number| (number, vec![load(FIRST_ARGUMENT), if_equal(0), end(ALLOW), end(ERRNO | EPERM)]));
    let kinds = of_some_kind.map(|(number, one)| {
        let another_kind = sock_filter { code: IF_EQUAL, jt: 1, jf: 0, k: one };
        let judge = vec![
            load(FIRST_ARGUMENT),
            another_kind,
            end(ERRNO | EPERM),
            load(SECOND_ARGUMENT),
            if_equal(0),
            end(ALLOW),
            end(ERRNO | EPERM),
        ];
        (number, judge)
    });
    let none = ipc.iter().map(|number| (*number, vec![end(ERRNO | ENOSYS)]));
    own.into_iter().chain(kinds).chain(none).collect()
}

#[cfg(test)]
mod tests {
    use super::super::calls::{Changes, Others, filter, tests::verdict_of};
    use super::*;

    #[test]
    fn a_program_sets_limits_and_priorities_of_itself_alone_and_has_no_ipc_where_others_are_in_reach() {
        let Some(Numbers { a_process, of_some_kind, ipc }) = NUMBERS else { return };
        for who in [Changes::Open, Changes::Handed, Changes::Refused] {
            let reached = filter(7, who, Others::InReach).unwrap();
            let apart = filter(7, who, Others::Apart).unwrap();
            for which in [0, 1, 2, 4711, u32::MAX] {
                let refused = if which == 0 { ALLOW } else { ERRNO | EPERM };
                for number in a_process {
                    assert_eq!(verdict_of(&reached, number, [which, 7]), refused, "{number} {which}");
                    assert_eq!(verdict_of(&apart, number, [which, 7]), ALLOW, "{number} {which}");
                }
                for (number, one) in of_some_kind {
                    for kind in [0, 1, 2, 3] {
                        let is_own = kind == one && which == 0;
                        let said = verdict_of(&reached, number, [kind, which]);
                        assert_eq!(said, if is_own { ALLOW } else { ERRNO | EPERM }, "{number} {kind} {which}");
                        assert_eq!(verdict_of(&apart, number, [kind, which]), ALLOW, "{number} {kind} {which}");
                    }
                }
                for number in ipc {
                    assert_eq!(verdict_of(&reached, *number, [which, 0]), ERRNO | ENOSYS, "{number}");
                    assert_eq!(verdict_of(&apart, *number, [which, 0]), ALLOW, "{number}");
                }
            }
        }
    }
}
