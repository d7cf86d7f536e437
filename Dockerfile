# syntax=docker/dockerfile:1
# docker build -t ddp-run:0.1.0 .
# docker run --rm --user "$(id -u)" -v "$PWD:/work" ddp-run:0.1.0 job.toml
# Dependencies are kept in caches of BuildKit's: after a change only ddp-run itself is built again.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --profile dist --locked && cp target/dist/ddp-run /usr/local/bin/

FROM debian:bookworm-slim
# Downloads of data sets trust the system's certificates.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home ddp-run
COPY --from=build /usr/local/bin/ddp-run /usr/local/bin/
COPY configs /opt/ddp-run/configs
# Runs are written below it.
RUN mkdir /work && chown ddp-run /work
# By number: Kubernetes checks `runAsNonRoot` by it.
USER 1000
WORKDIR /work
ENTRYPOINT ["ddp-run"]
