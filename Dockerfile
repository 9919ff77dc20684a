# Octavo's image: the locked dependencies and the wheel in one venv, run by a user who can write to nothing but /data.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
RUN apt-get update && apt-get install --yes --no-install-recommends python3 python3-venv
WORKDIR /src
COPY requirements.lock ./
RUN python3 -m venv /opt/octavo && /opt/octavo/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY . ./
RUN /opt/octavo/bin/pip install --no-cache-dir --no-deps . \
    && /opt/octavo/bin/pip uninstall --yes setuptools \
    && find /opt/octavo -type d -name tests -prune -exec rm -r {} +

FROM ${BASE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
    && useradd --system --uid 10001 --gid 0 --home-dir /data --shell /usr/sbin/nologin octavo \
    && install --directory --owner root --group root --mode 1770 /data
COPY --from=build /opt/octavo /opt/octavo

# Models and compiled kernels; they are worth keeping between containers. Any user of group 0 may run the image, as
# OpenShift does; /data is sticky, so that none of them can swap another's compiled kernels.
ENV OCTAVO_CACHE=/data HOME=/data PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1
VOLUME /data
USER 10001:0
WORKDIR /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["/opt/octavo/bin/python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/health', timeout=2)"]
ENTRYPOINT ["/opt/octavo/bin/octavo"]
# A published port is reachable from the network, so the server does not start without OCTAVO_API_KEY (or, if an open
# server is meant, --insecure-no-key).
CMD ["serve", "--host", "0.0.0.0"]
