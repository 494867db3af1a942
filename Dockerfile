# convkit with its host tools; stages build their own environments in /home/convkit/runs.
#
#   docker build -t convkit .
#   docker run -v convkit-runs:/home/convkit/runs convkit run recipes/bert.yaml
FROM debian:bookworm-slim

RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates git make python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home convkit

WORKDIR /home/convkit
COPY --chown=convkit:convkit . .
RUN chown convkit:convkit /home/convkit
USER convkit
RUN make .venv/.run

ENV PATH=/home/convkit/.venv/bin:$PATH
VOLUME /home/convkit/runs
ENTRYPOINT ["convkit"]
CMD ["--help"]
