/** Texts of small files in the images. */

export const PASSWD = `root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
bin:x:2:2:bin:/bin:/bin/false
sys:x:3:3:sys:/dev:/bin/false
mail:x:8:8:mail:/var/mail:/bin/false
www-data:x:33:33:www-data:/var/www:/bin/false
nobody:x:65534:65534:nobody:/:/bin/false
`;
export const GROUP = `root:x:0:
daemon:x:1:
bin:x:2:
sys:x:3:
tty:x:5:
disk:x:6:
mail:x:8:
www-data:x:33:
users:x:100:
nogroup:x:65534:
`;

/** The user, and the group it also belongs to, that the tests of supplemental groups look for. */
export const AGNHOST_PASSWD = `${PASSWD}user-defined-in-image:x:1000:1000:Linux User,,,:/home/user-defined-in-image:/bin/sh
`;
export const AGNHOST_GROUP = `${GROUP}user-defined-in-image:x:1000:
group-defined-in-image:x:50000:user-defined-in-image
`;

export const BUSYBOX_PASSWD = `root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
bin:x:2:2:bin:/bin:/bin/false
sys:x:3:3:sys:/dev:/bin/false
sync:x:4:100:sync:/bin:/bin/sync
mail:x:8:8:mail:/var/spool/mail:/bin/false
www-data:x:33:33:www-data:/var/www:/bin/false
operator:x:37:37:Operator:/var:/bin/false
nobody:x:65534:65534:nobody:/home:/bin/false
`;
export const BUSYBOX_GROUP = `root:x:0:
daemon:x:1:
bin:x:2:
sys:x:3:
tty:x:5:
disk:x:6:
wheel:x:10:root
mail:x:8:
www-data:x:33:
operator:x:37:
users:x:100:
nobody:x:65534:
`;

/** A test reads this file through an image volume and looks for the name of the original's distribution. */
export const OS_RELEASE = `NAME="packages of this machine's distribution in the place of Alpine Linux"
ID=nodelet-e2e
PRETTY_NAME="e2e image made here, in the place of one on Alpine Linux"
`;

/** The distribution's busybox ends with a segmentation fault on \`wget -T\`; here the time is kept by \`timeout\`. */
export const WGET = `#!/bin/sh
limit=
set_aside=()
while [ $# -gt 0 ]; do
  case "$1" in
    -T | --timeout) limit=$2; shift ;;
    -T*) limit=\${1#-T} ;;
    --timeout=*) limit=\${1#--timeout=} ;;
    *) set_aside+=("$1") ;;
  esac
  shift
done
if [ -n "$limit" ]; then
  timeout "$limit" /bin/busybox wget "\${set_aside[@]}"
  code=$?
  [ $code -eq 143 ] && { echo 'wget: download timed out' >&2; exit 1; }
  exit $code
fi
exec /bin/busybox wget "\${set_aside[@]}"
`;

const nginx = (port: number): string => `user www-data;
worker_processes auto;
error_log /var/log/nginx/error.log notice;
pid /var/run/nginx.pid;
events {
  worker_connections 1024;
}
http {
  include /etc/nginx/mime.types;
  default_type application/octet-stream;
  access_log /var/log/nginx/access.log;
  sendfile on;
  keepalive_timeout 65;
  server {
    listen ${port};
    server_name localhost;
    location / {
      root /usr/share/nginx/html;
      index index.html index.htm;
    }
  }
  include /etc/nginx/conf.d/*.conf;
}
`;

export const NGINX_CONF = nginx(80);
/** Of the image that shares the host's network. */
export const HOST_NGINX = nginx(12003);

export const HTTPD = `#!/bin/sh
rm -f /usr/local/apache2/logs/httpd.pid
exec -a httpd /usr/sbin/apache2 -DFOREGROUND -f /usr/local/apache2/conf/httpd.conf "$@"
`;
export const HTTPD_CONF = `ServerRoot "/usr/local/apache2"
ServerName localhost
Listen 80
PidFile logs/httpd.pid
DefaultRuntimeDir logs
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
User www-data
Group www-data
DocumentRoot "/usr/local/apache2/htdocs"
DirectoryIndex index.html
ErrorLog /proc/self/fd/2
LogLevel warn core:notice mpm_event:notice
LogFormat "%h %l %u %t \\"%r\\" %>s %b"
TransferLog /proc/self/fd/1
<Directory "/usr/local/apache2/htdocs">
  Require all granted
</Directory>
`;
