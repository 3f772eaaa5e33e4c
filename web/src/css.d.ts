// Style sheets are imported for what they do; esbuild joins them into app.css.
declare module "*.css";
