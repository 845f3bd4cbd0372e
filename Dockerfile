# The course in JupyterLab:
#   docker build -t mcnb . && docker run --rm -p 127.0.0.1:8888:8888 mcnb
# Then open the address that JupyterLab prints. Binder builds this file, too.
FROM debian:trixie-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
# Binder chooses the user, and opens JupyterLab in the user's home.
ARG NB_USER=learner
ARG NB_UID=1000
RUN useradd --create-home --shell /bin/bash --uid "$NB_UID" "$NB_USER"
ENV PATH=/opt/venv/bin:$PATH
COPY . /opt/mcnb
RUN python3 -m venv /opt/venv && pip install --quiet --no-cache-dir "/opt/mcnb[lab]"
USER $NB_USER
WORKDIR /home/$NB_USER
RUN mcnb lab --copy .
CMD ["mcnb", "lab", ".", "--", "--no-browser", "--ip=0.0.0.0"]
