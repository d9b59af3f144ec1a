# Made by `ringleader image render` from the recipe pytorch-2.8-efa: change that, not this file.
# PyTorch 2.8 with CUDA 12.8 for EFA on AWS: Amazon's libfabric and NCCL plugin, Open MPI on that libfabric

FROM nvidia/cuda:12.8.1-devel-ubuntu24.04 AS build

RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends build-essential bzip2 \
         ca-certificates curl pciutils python3 python3-venv \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/*

# Packages of pip go into their own environment, copied whole into the image.
RUN python3 -m venv /opt/venv
ENV PATH="/opt/venv/bin:${PATH}"

# EFA's user space by Amazon's installer. EFA installer 1.49.0.
RUN mkdir -p /opt/build \
 && curl -fsSL --retry 3 -o /opt/build/aws-efa-installer-1.49.0.tar.gz \
         https://efa-installer.amazonaws.com/aws-efa-installer-1.49.0.tar.gz \
 && printf '%s\n' \
         'cf2e9281a2328a243c76f911a490faed43ca0fecfe4733c25e34b2e92a32c309  /opt/build/aws-efa-installer-1.49.0.tar.gz' \
         > /opt/build/aws-efa-installer-1.49.0.tar.gz.sha256 \
 && sha256sum --check --strict /opt/build/aws-efa-installer-1.49.0.tar.gz.sha256 \
 && mkdir -p /opt/build/efa \
 && tar -xf /opt/build/aws-efa-installer-1.49.0.tar.gz -C /opt/build/efa --strip-components 1 \
 && rm -f /opt/build/aws-efa-installer-1.49.0.tar.gz /opt/build/aws-efa-installer-1.49.0.tar.gz.sha256 \
 && apt-get update \
 && DEBIAN_FRONTEND=noninteractive env --chdir=/opt/build/efa ./efa_installer.sh -y --skip-kmod \
         --skip-limit-conf --no-verify --skip-mpi \
 && rm -rf /opt/build \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* \
 && ldconfig

# Open MPI 5.0.9.
RUN mkdir -p /opt/build \
 && curl -fsSL --retry 3 -o /opt/build/openmpi-5.0.9.tar.bz2 \
         https://download.open-mpi.org/release/open-mpi/v5.0/openmpi-5.0.9.tar.bz2 \
 && printf '%s\n' \
         'dfb72762531170847af3e4a0f21d77d7b23cf36f67ce7ce9033659273677d80b  /opt/build/openmpi-5.0.9.tar.bz2' \
         > /opt/build/openmpi-5.0.9.tar.bz2.sha256 \
 && sha256sum --check --strict /opt/build/openmpi-5.0.9.tar.bz2.sha256 \
 && mkdir -p /opt/build/openmpi \
 && tar -xf /opt/build/openmpi-5.0.9.tar.bz2 -C /opt/build/openmpi --strip-components 1 \
 && rm -f /opt/build/openmpi-5.0.9.tar.bz2 /opt/build/openmpi-5.0.9.tar.bz2.sha256 \
 && env --chdir=/opt/build/openmpi ./configure --prefix=/opt/openmpi --enable-prte-prefix-by-default \
         --enable-mpi-fortran=no --with-hwloc=internal --with-libevent=internal --with-pmix=internal \
         --without-ucx --with-ofi=/opt/amazon/efa --with-prrte=internal --with-cuda=/usr/local/cuda \
         --with-cuda-libdir=/usr/local/cuda/lib64/stubs \
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
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ca-certificates curl \
         openssh-client openssh-server pciutils python3 \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/venv /opt/venv/
ENV PATH="/opt/venv/bin:${PATH}"

# EFA's user space by Amazon's installer. EFA installer 1.49.0.
RUN mkdir -p /opt/build \
 && curl -fsSL --retry 3 -o /opt/build/aws-efa-installer-1.49.0.tar.gz \
         https://efa-installer.amazonaws.com/aws-efa-installer-1.49.0.tar.gz \
 && printf '%s\n' \
         'cf2e9281a2328a243c76f911a490faed43ca0fecfe4733c25e34b2e92a32c309  /opt/build/aws-efa-installer-1.49.0.tar.gz' \
         > /opt/build/aws-efa-installer-1.49.0.tar.gz.sha256 \
 && sha256sum --check --strict /opt/build/aws-efa-installer-1.49.0.tar.gz.sha256 \
 && mkdir -p /opt/build/efa \
 && tar -xf /opt/build/aws-efa-installer-1.49.0.tar.gz -C /opt/build/efa --strip-components 1 \
 && rm -f /opt/build/aws-efa-installer-1.49.0.tar.gz /opt/build/aws-efa-installer-1.49.0.tar.gz.sha256 \
 && apt-get update \
 && DEBIAN_FRONTEND=noninteractive env --chdir=/opt/build/efa ./efa_installer.sh -y --skip-kmod \
         --skip-limit-conf --no-verify --skip-mpi \
 && rm -rf /opt/build \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* \
 && ldconfig
ENV PATH="/opt/amazon/efa/bin:${PATH}"
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
         'SetEnv PATH=/opt/venv/bin:/opt/openmpi/bin:/opt/amazon/efa/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
         > /etc/ssh/sshd_config \
 && printf '%s\n' \
         'export PATH=/opt/venv/bin:/opt/openmpi/bin:/opt/amazon/efa/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
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
         '{"base":"nvidia/cuda:12.8.1-base-ubuntu24.04","blocks":{"account":{"name":"trainer","uid":1000},"cuda":{"version":"12.8.1"},"mpi":{"kind":"openmpi","sha256":"","source":"build","version":"5.0.9"},"python":{"source":"base","version":""},"rdma":{"fingerprint":"","sha256":"","tools":false,"user_space":"efa","version":""},"ringleader":{"extras":[],"wheel":""},"sshd":{"keys":"mounted","port":2222},"torch":{"torchvision":"0.23.0","variant":"","version":"2.8.0","wheels":""}},"historical":false,"mirrors_kept":false,"name":"pytorch-2.8-efa","recipe":"sha256:5a1037df68f6cf456fad954d346de532f463420c402f9c676d2024dc6de3eef4","ringleader":"0.1.0"}' \
         > /usr/share/ringleader/image.json

# What is in this image, for those who look for known faults.
RUN mkdir -p /usr/share/doc/ringleader \
 && /opt/venv/bin/ringleader doctor --sbom /usr/share/doc/ringleader/sbom.cdx.json
LABEL org.opencontainers.image.title="pytorch-2.8-efa" \
      org.opencontainers.image.description="PyTorch 2.8 with CUDA 12.8 for EFA on AWS: Amazon's libfabric and NCCL plugin, Open MPI on that libfabric" \
      org.opencontainers.image.version="5a1037df68f6" \
      org.opencontainers.image.ref.name="pytorch-2.8-efa" \
      org.opencontainers.image.base.name="nvidia/cuda:12.8.1-base-ubuntu24.04" \
      ringleader.recipe="sha256:5a1037df68f6cf456fad954d346de532f463420c402f9c676d2024dc6de3eef4" \
      ringleader.version="0.1.0"
EXPOSE 2222
WORKDIR /home/trainer
USER 1000:1000
CMD ["/usr/sbin/sshd", "-De", "-f", "/etc/ssh/sshd_config"]
