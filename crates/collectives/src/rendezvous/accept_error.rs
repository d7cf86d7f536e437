//! Which errors of accept(2) are temporary, and which end the listening.

/// What an error of accept(2) means for the next call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AcceptError {
    /// The connection failed while it was queued: the next one may work.
    Connection,
    /// The system is short of a resource.
    Resources,
    /// The listener itself is unusable.
    Listener,
}

pub(super) fn classify(error: &std::io::Error) -> AcceptError {
    let Some(errno) = rustix::io::Errno::from_io_error(error) else { return AcceptError::Listener };
    use rustix::io::Errno as E;
    match errno {
        // Linux returns errors that occurred on the new connection before it was accepted; see accept(2).
        E::INTR | E::CONNABORTED | E::NETDOWN | E::PROTO | E::NOPROTOOPT | E::HOSTDOWN | E::HOSTUNREACH => {
            AcceptError::Connection
        }
        E::OPNOTSUPP | E::NETUNREACH | E::PERM | E::TIMEDOUT | E::CONNRESET => AcceptError::Connection,
        #[cfg(target_os = "linux")]
        E::NONET => AcceptError::Connection,
        E::MFILE | E::NFILE | E::NOBUFS | E::NOMEM => AcceptError::Resources,
        _ => AcceptError::Listener,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errno by name, so that the table is not tested against itself.
    #[test]
    fn only_a_listener_error_is_fatal() {
        let of = |errno: i32| classify(&std::io::Error::from_raw_os_error(errno));
        for (errno, expected) in [
            (libc::ECONNABORTED, AcceptError::Connection),
            (libc::ENETDOWN, AcceptError::Connection),
            (libc::EHOSTUNREACH, AcceptError::Connection),
            (libc::EPROTO, AcceptError::Connection),
            (libc::EINTR, AcceptError::Connection),
            (libc::EMFILE, AcceptError::Resources),
            (libc::ENFILE, AcceptError::Resources),
            (libc::ENOMEM, AcceptError::Resources),
            (libc::EBADF, AcceptError::Listener),
            (libc::EINVAL, AcceptError::Listener),
            (libc::ENOTSOCK, AcceptError::Listener),
        ] {
            assert_eq!(of(errno), expected, "{errno}");
        }
        assert_eq!(classify(&std::io::Error::other("no errno")), AcceptError::Listener);
    }
}
