//! Which errors of accept(2) are temporary, and which end the listening.

/// What an error of accept(2) means for the next call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// The connection failed while it was queued: the next one may work.
    Next,
    /// The system is short of a resource.
    Later,
    /// The listener itself is unusable.
    Never,
}

pub(super) fn outlook(error: &std::io::Error) -> Outlook {
    let Some(errno) = rustix::io::Errno::from_io_error(error) else { return Outlook::Never };
    use rustix::io::Errno as E;
    match errno {
        // Linux returns errors that the new connection met before it was accepted; see accept(2).
        E::INTR | E::CONNABORTED | E::NETDOWN | E::PROTO | E::NOPROTOOPT | E::HOSTDOWN | E::HOSTUNREACH => {
            Outlook::Next
        }
        E::OPNOTSUPP | E::NETUNREACH | E::PERM | E::TIMEDOUT | E::CONNRESET => Outlook::Next,
        #[cfg(target_os = "linux")]
        E::NONET => Outlook::Next,
        E::MFILE | E::NFILE | E::NOBUFS | E::NOMEM => Outlook::Later,
        _ => Outlook::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errno by name, so that the table is not tested against itself.
    #[test]
    fn only_a_broken_listener_ends_the_rendezvous() {
        let of = |errno: i32| outlook(&std::io::Error::from_raw_os_error(errno));
        for (errno, expected) in [
            (libc::ECONNABORTED, Outlook::Next),
            (libc::ENETDOWN, Outlook::Next),
            (libc::EHOSTUNREACH, Outlook::Next),
            (libc::EPROTO, Outlook::Next),
            (libc::EINTR, Outlook::Next),
            (libc::EMFILE, Outlook::Later),
            (libc::ENFILE, Outlook::Later),
            (libc::ENOMEM, Outlook::Later),
            (libc::EBADF, Outlook::Never),
            (libc::EINVAL, Outlook::Never),
            (libc::ENOTSOCK, Outlook::Never),
        ] {
            assert_eq!(of(errno), expected, "{errno}");
        }
        assert_eq!(outlook(&std::io::Error::other("no errno")), Outlook::Never);
    }
}
