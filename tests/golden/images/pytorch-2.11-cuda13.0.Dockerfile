# Made by `ringleader image render` from the recipe pytorch-2.11-cuda13.0: change that, not this file.
# PyTorch 2.11 with CUDA 13.0 on Debian 13, with Open MPI 5 and sshd

FROM debian:13 AS build

RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3 python3-venv \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/*

# Packages of pip go into their own environment, copied whole into the image.
RUN python3 -m venv /opt/venv
ENV PATH="/opt/venv/bin:${PATH}"

RUN /opt/venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check torch==2.11.0 \
         torchvision==0.26.0

RUN /opt/venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check 'click>=8.2,<9' \
         'cloudpickle>=3,<4' 'mpi4py>=4.1,<5' 'numpy>=1.23,<3' 'tabulate>=0.9,<1'
COPY ringleader-0.1.0-py3-none-any.whl /opt/build/

RUN /opt/venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check --no-deps --no-index \
         /opt/build/ringleader-0.1.0-py3-none-any.whl

FROM debian:13

# The package makes host keys where there are none, and no key may be part of an image.
RUN mkdir -p /etc/ssh \
 && touch /etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_ecdsa_key /etc/ssh/ssh_host_ed25519_key

# The account of the containers, without a password. Others may read its home, but not its keys.
RUN { if id ubuntu > /dev/null 2>&1; then userdel --remove ubuntu; fi; } \
 && groupadd --gid 1000 trainer \
 && useradd --uid 1000 --gid 1000 --create-home --shell /bin/bash --password '*' trainer \
 && install -d -m 0755 -o 1000 -g 1000 /home/trainer \
 && install -d -m 0700 -o 1000 -g 1000 /home/trainer/.ssh

RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ca-certificates \
         ibverbs-providers libibumad3 libibverbs1 librdmacm1t64 openmpi-bin openssh-client openssh-server \
         python3 \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/venv /opt/venv/
ENV PATH="/opt/venv/bin:${PATH}"
ENV NVIDIA_VISIBLE_DEVICES="all" \
    NVIDIA_DRIVER_CAPABILITIES="compute,utility"

# Whoever connects proves the key in /home/trainer/.ssh, and so does the host: one key pair for one job.
RUN rm -f /etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_ecdsa_key /etc/ssh/ssh_host_ed25519_key \
         /etc/ssh/ssh_host_rsa_key.pub /etc/ssh/ssh_host_ecdsa_key.pub /etc/ssh/ssh_host_ed25519_key.pub \
 && mkdir -p /run/sshd \
 && printf '%s\n' \
         'Port 2222' \
         'HostKey /home/trainer/.ssh/id_rsa' \
         'PidFile none' \
         'UsePAM no' \
         'StrictModes no' \
         'AllowUsers trainer' \
         'PermitRootLogin no' \
         'AuthorizedKeysFile /home/trainer/.ssh/authorized_keys' \
         'PasswordAuthentication no' \
         'KbdInteractiveAuthentication no' \
         'X11Forwarding no' \
         'SetEnv PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
         > /etc/ssh/sshd_config \
 && printf '%s\n' \
         'export PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
         > /etc/profile.d/ringleader.sh \
 && printf '%s\n' \
         'IgnoreUnknown KnownHostsCommand' \
         'Host *' \
         '    Port 2222' \
         '    User trainer' \
         '    BatchMode yes' \
         '    ConnectTimeout 20' \
         '    KnownHostsCommand /bin/sh -c "sed '\''s/^/* /'\'' /home/trainer/.ssh/id_rsa.pub 2>/dev/null || true"' \
         > /etc/ssh/ssh_config

RUN mkdir -p /usr/share/ringleader \
 && printf '%s\n' \
         '{"base":"debian:13","blocks":{"account":{"name":"trainer","uid":1000},"mpi":{"kind":"openmpi","sha256":"","source":"base","version":""},"python":{"source":"base","version":""},"rdma":{"fingerprint":"","sha256":"","tools":false,"user_space":"rdma-core","version":""},"ringleader":{"extras":[],"wheel":""},"sshd":{"keys":"mounted","port":2222},"torch":{"torchvision":"0.26.0","variant":"","version":"2.11.0","wheels":""}},"historical":false,"mirrors_kept":false,"name":"pytorch-2.11-cuda13.0","recipe":"sha256:b29f64c5955edce97af09bc4f3d8f44bb61937fb3561553c4f76020f266e844b","ringleader":"0.1.0"}' \
         > /usr/share/ringleader/image.json

# What is in this image, for those who look for known faults.
RUN mkdir -p /usr/share/doc/ringleader \
 && /opt/venv/bin/ringleader doctor --sbom /usr/share/doc/ringleader/sbom.cdx.json
LABEL org.opencontainers.image.title="pytorch-2.11-cuda13.0" \
      org.opencontainers.image.description="PyTorch 2.11 with CUDA 13.0 on Debian 13, with Open MPI 5 and sshd" \
      org.opencontainers.image.version="b29f64c5955e" \
      org.opencontainers.image.ref.name="pytorch-2.11-cuda13.0" \
      org.opencontainers.image.base.name="debian:13" \
      ringleader.recipe="sha256:b29f64c5955edce97af09bc4f3d8f44bb61937fb3561553c4f76020f266e844b" \
      ringleader.version="0.1.0"
EXPOSE 2222
WORKDIR /home/trainer
USER 1000:1000
CMD ["/usr/sbin/sshd", "-De", "-f", "/etc/ssh/sshd_config"]
