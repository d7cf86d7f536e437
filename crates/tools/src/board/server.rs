//! Connections: HTTP/1.1 by hyper, all on one thread. Slow work runs on a few more threads, whose number does not depend
//! on the number of browsers.

use super::access::Access;
use super::routes::{self, Answer, Reply, Request};
use super::shared::BoardShared;
use super::stream::{COMMENT, Next, Stream};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// Connections at a time; further ones are closed at once.
const MOST: usize = 512;
/// Threads for slow work.
const THREADS: usize = 4;
/// For the head of a request, and for the next one on a connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// A stream sends something at least this often, so that a closed connection is noticed.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// And at most this often.
const PACE: Duration = Duration::from_millis(250);
/// For a client to take what is sent. One that never does would hold its answer in memory.
#[cfg(target_os = "linux")]
const UNTAKEN: Duration = Duration::from_secs(60);
/// Bytes of a request's head.
const HEAD: usize = 64 << 10;

/// The state of the server.
pub(super) struct Site {
    pub access: Access,
    pub shared: Arc<BoardShared>,
}

/// Serves until the process ends.
///
/// # Errors
/// The system has no threads or descriptors for it.
pub(super) fn run(listener: std::net::TcpListener, site: Arc<Site>) -> io::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(THREADS).thread_name("board").build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        accept(TcpListener::from_std(listener)?, site).await;
        Ok::<(), io::Error>(())
    })
}

async fn accept(listener: TcpListener, site: Arc<Site>) {
    let free = Arc::new(Semaphore::new(MOST));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(place) = Arc::clone(&free).try_acquire_owned() else { continue };
                let site = Arc::clone(&site);
                tokio::spawn(async move {
                    serve(stream, site).await;
                    drop(place);
                });
            }
            // There may be a descriptor later.
            Err(_) => sleep(PACE).await,
        }
    }
}

/// Answers the requests of a connection. Errors of the connection are ignored.
async fn serve(stream: TcpStream, site: Arc<Site>) {
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, UNTAKEN.as_millis() as u32);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (asked, site) = (asked(&request), Arc::clone(&site));
        async move { Ok::<_, Infallible>(respond(asked, site).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(HEAD);
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(asked: Request, site: Arc<Site>) -> Response<Content> {
    let head = asked.method == "HEAD";
    let answering = Arc::clone(&site);
    let answer = spawn_blocking(move || routes::answer(&asked, &answering.access, &answering.shared)).await;
    match answer {
        Ok(Answer::Whole(reply)) => whole(reply),
        Ok(Answer::Events(stream)) => {
            let (send, receive) = mpsc::channel(1);
            if !head {
                tokio::spawn(send_updates(stream, Arc::clone(&site.shared), send));
            }
            response(StatusCode::OK, "text/event-stream", "default-src 'none'", Content::Events(receive))
        }
        // A panic, which is a bug.
        Err(_) => whole(Reply::text(
            500,
            "The board could not answer; standard error of `ddp-run board` says more.",
        )),
    }
}

/// The parts of a request that matter.
fn asked(request: &hyper::Request<Incoming>) -> Request {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    Request {
        method: request.method().as_str().to_owned(),
        hosts: request.headers().get_all(header::HOST).iter().map(text).collect(),
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        last: request.headers().get("last-event-id").map(text),
    }
}

fn whole(reply: Reply) -> Response<Content> {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = response(status, reply.kind, &reply.policy, Content::Whole(Some(reply.text.into())));
    if let Some(Ok(place)) = reply.elsewhere.map(HeaderValue::try_from) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

fn response(status: StatusCode, kind: &'static str, policy: &str, content: Content) -> Response<Content> {
    let mut response = Response::new(content);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(header::CONTENT_TYPE, kind);
    set(header::CACHE_CONTROL, "no-store");
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    if status == StatusCode::METHOD_NOT_ALLOWED {
        set(header::ALLOW, "GET, HEAD");
    }
    protect(headers, policy);
    response
}

/// Sets the content-security policy; a header that can't be written is the strictest one.
fn protect(headers: &mut HeaderMap, policy: &str) {
    let value = HeaderValue::from_str(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"));
    headers.insert(header::CONTENT_SECURITY_POLICY, value);
}

/// Sends a page what is new until it is closed.
async fn send_updates(mut stream: Stream, shared: Arc<BoardShared>, send: mpsc::Sender<Bytes>) {
    let mut versions = shared.versions();
    loop {
        versions.borrow_and_update();
        let looking = Arc::clone(&shared);
        let looked = spawn_blocking(move || {
            let next = stream.next(&looking);
            (stream, next)
        });
        let Ok((after, next)) = looked.await else { return };
        stream = after;
        let (text, last) = match next {
            Next::Nothing => (None, false),
            Next::Send(text) => (Some(text), false),
            Next::Last(text) => (Some(text), true),
        };
        let sent = text.is_some();
        if let Some(text) = text
            && send.send(text.into()).await.is_err()
        {
            return;
        }
        if last || (sent && until_closed(&send, sleep(PACE)).await.is_none()) {
            return;
        }
        match until_closed(&send, timeout(HEARTBEAT, versions.changed())).await {
            // Something has changed.
            Some(Ok(Ok(()))) => {}
            Some(Err(_)) => {
                if send.send(COMMENT.into()).await.is_err() {
                    return;
                }
            }
            // The page is closed, or the board has ended.
            None | Some(Ok(Err(_))) => return,
        }
    }
}

/// The output of `future`; `None` if the page is closed first.
async fn until_closed<F: Future>(send: &mpsc::Sender<Bytes>, future: F) -> Option<F::Output> {
    let (mut closed, mut future) = (pin!(send.closed()), pin!(future));
    std::future::poll_fn(|cx| match closed.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => future.as_mut().poll(cx).map(Some),
    })
    .await
}

/// The body of a response.
enum Content {
    Whole(Option<Bytes>),
    Events(mpsc::Receiver<Bytes>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(receive) => {
                receive.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Events(_) => SizeHint::default(),
        }
    }
}
