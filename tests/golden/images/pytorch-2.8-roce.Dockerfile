# Made by `ringleader image render` from the recipe pytorch-2.8-roce: change that, not this file.
# PyTorch 2.8 with CUDA 12.8 for RoCE with the distribution's rdma-core; UCX and Open MPI with GPU memory

FROM nvidia/cuda:12.8.1-devel-ubuntu24.04 AS build

RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends build-essential bzip2 \
         ca-certificates curl libibumad-dev libibverbs-dev librdmacm-dev python3 python3-venv \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/*

# Packages of pip go into their own environment, copied whole into the image.
RUN python3 -m venv /opt/venv
ENV PATH="/opt/venv/bin:${PATH}"

# UCX 1.19.1. Ranks with several threads may use it.
RUN mkdir -p /opt/build \
 && curl -fsSL --retry 3 -o /opt/build/ucx-1.19.1.tar.gz \
         https://github.com/openucx/ucx/releases/download/v1.19.1/ucx-1.19.1.tar.gz \
 && printf '%s\n' \
         'dea5d821fce05b6ffe175a74e6e148386dd85791409fc71242f3d1369100fd8a  /opt/build/ucx-1.19.1.tar.gz' \
         > /opt/build/ucx-1.19.1.tar.gz.sha256 \
 && sha256sum --check --strict /opt/build/ucx-1.19.1.tar.gz.sha256 \
 && mkdir -p /opt/build/ucx \
 && tar -xf /opt/build/ucx-1.19.1.tar.gz -C /opt/build/ucx --strip-components 1 \
 && rm -f /opt/build/ucx-1.19.1.tar.gz /opt/build/ucx-1.19.1.tar.gz.sha256 \
 && env --chdir=/opt/build/ucx ./contrib/configure-release --prefix=/opt/ucx --enable-mt --with-verbs \
         --with-rdmacm --with-cuda=/usr/local/cuda --without-go --without-java --disable-static \
 && make -j "$(nproc)" -C /opt/build/ucx \
 && make -C /opt/build/ucx install \
 && rm -rf /opt/build/ucx

RUN printf '%s\n' \
         '/opt/ucx/lib' \
         > /etc/ld.so.conf.d/opt-ucx.conf \
 && ldconfig

# Open MPI 4.1.8.
RUN mkdir -p /opt/build \
 && curl -fsSL --retry 3 -o /opt/build/openmpi-4.1.8.tar.bz2 \
         https://download.open-mpi.org/release/open-mpi/v4.1/openmpi-4.1.8.tar.bz2 \
 && printf '%s\n' \
         '466f68e3132a1dc02710cc2011fafced8336d98359fa2dae4dddcfd5719f12a9  /opt/build/openmpi-4.1.8.tar.bz2' \
         > /opt/build/openmpi-4.1.8.tar.bz2.sha256 \
 && sha256sum --check --strict /opt/build/openmpi-4.1.8.tar.bz2.sha256 \
 && mkdir -p /opt/build/openmpi \
 && tar -xf /opt/build/openmpi-4.1.8.tar.bz2 -C /opt/build/openmpi --strip-components 1 \
 && rm -f /opt/build/openmpi-4.1.8.tar.bz2 /opt/build/openmpi-4.1.8.tar.bz2.sha256 \
 && env --chdir=/opt/build/openmpi ./configure --prefix=/opt/openmpi --enable-orterun-prefix-by-default \
         --enable-mpi-fortran=no --with-hwloc=internal --with-libevent=internal --with-pmix=internal \
         --with-ucx=/opt/ucx --without-ofi --without-verbs --with-cuda=/usr/local/cuda \
 && make -j "$(nproc)" -C /opt/build/openmpi \
 && make -C /opt/build/openmpi install \
 && rm -rf /opt/build/openmpi

RUN printf '%s\n' \
         '/opt/openmpi/lib' \
         > /etc/ld.so.conf.d/opt-openmpi.conf \
 && ldconfig
ENV PATH="/opt/openmpi/bin:${PATH}"

RUN /opt/venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check torch==2.8.0 \
         torchvision==0.23.0

RUN /opt/venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check 'click>=8.2,<9' \
         'cloudpickle>=3,<4' 'mpi4py>=4.1,<5' 'numpy>=1.23,<3' 'tabulate>=0.9,<1'

RUN rm -rf /opt/ucx/include /opt/ucx/share/man /opt/ucx/share/doc \
 && find /opt/ucx/lib -name '*.la' -delete -o -name '*.a' -delete

RUN rm -rf /opt/openmpi/include /opt/openmpi/share/man /opt/openmpi/share/doc \
 && find /opt/openmpi/lib -name '*.la' -delete -o -name '*.a' -delete
COPY ringleader-0.1.0-py3-none-any.whl /opt/build/

RUN /opt/venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check --no-deps --no-index \
         /opt/build/ringleader-0.1.0-py3-none-any.whl

FROM nvidia/cuda:12.8.1-base-ubuntu24.04

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
         ibverbs-providers ibverbs-utils infiniband-diags libibumad3 libibverbs1 librdmacm1t64 openssh-client \
         openssh-server perftest python3 rdmacm-utils \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/venv /opt/venv/
ENV PATH="/opt/venv/bin:${PATH}"
COPY --from=build /opt/ucx /opt/ucx/

RUN printf '%s\n' \
         '/opt/ucx/lib' \
         > /etc/ld.so.conf.d/opt-ucx.conf \
 && ldconfig
ENV PATH="/opt/ucx/bin:${PATH}"
COPY --from=build /opt/openmpi /opt/openmpi/

RUN printf '%s\n' \
         '/opt/openmpi/lib' \
         > /etc/ld.so.conf.d/opt-openmpi.conf \
 && ldconfig
ENV PATH="/opt/openmpi/bin:${PATH}"

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
         'SetEnv PATH=/opt/venv/bin:/opt/openmpi/bin:/opt/ucx/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
         > /etc/ssh/sshd_config \
 && printf '%s\n' \
         'export PATH=/opt/venv/bin:/opt/openmpi/bin:/opt/ucx/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
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
         '{"base":"nvidia/cuda:12.8.1-base-ubuntu24.04","blocks":{"account":{"name":"trainer","uid":1000},"cuda":{"version":"12.8.1"},"mpi":{"kind":"openmpi","sha256":"","source":"build","version":"4.1.8"},"python":{"source":"base","version":""},"rdma":{"fingerprint":"","sha256":"","tools":true,"user_space":"rdma-core","version":""},"ringleader":{"extras":[],"wheel":""},"sshd":{"keys":"mounted","port":2222},"torch":{"torchvision":"0.23.0","variant":"","version":"2.8.0","wheels":""},"ucx":{"cuda":true,"sha256":"","source":"build","version":"1.19.1"}},"historical":false,"mirrors_kept":false,"name":"pytorch-2.8-roce","recipe":"sha256:acb8bf50445b837f8a94ee1f2cde3c8952cb514adaad53dab981fb00548e5552","ringleader":"0.1.0"}' \
         > /usr/share/ringleader/image.json

# What is in this image, for those who look for known faults.
RUN mkdir -p /usr/share/doc/ringleader \
 && /opt/venv/bin/ringleader doctor --sbom /usr/share/doc/ringleader/sbom.cdx.json
LABEL org.opencontainers.image.title="pytorch-2.8-roce" \
      org.opencontainers.image.description="PyTorch 2.8 with CUDA 12.8 for RoCE with the distribution's rdma-core; UCX and Open MPI with GPU memory" \
      org.opencontainers.image.version="acb8bf50445b" \
      org.opencontainers.image.ref.name="pytorch-2.8-roce" \
      org.opencontainers.image.base.name="nvidia/cuda:12.8.1-base-ubuntu24.04" \
      ringleader.recipe="sha256:acb8bf50445b837f8a94ee1f2cde3c8952cb514adaad53dab981fb00548e5552" \
      ringleader.version="0.1.0"
EXPOSE 2222
WORKDIR /home/trainer
USER 1000:1000
CMD ["/usr/sbin/sshd", "-De", "-f", "/etc/ssh/sshd_config"]
